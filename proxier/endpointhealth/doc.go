// Package endpointhealth knows which endpoints serve: one state for each endpoint, one queue of questions, and one place
// that says what an answer means.
//
//	question.go  questions and answers
package endpointhealth
