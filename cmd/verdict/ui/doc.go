// Package ui is the page /ui of the daemon: it shows Services, endpoints, connection rates and passes, and explains
// connections. It changes nothing.
//
//	handler.go   paths, what every request must satisfy, and how much the page may cost
//	services.go  the list of Services: search, order and pages; one Service, and explanations
//	overview.go  the first lines of the page, with what needs attention; passes and their changes
//	page         the HTML, CSS and JavaScript, without a framework and without resources of other hosts
//
// The page asks every two seconds for what it shows. What is read from the kernel does not grow with the number of
// viewers: rates are read at most once a second, a Service is read at most once a second, and only the rows of a list
// that are shown are made.
package ui
