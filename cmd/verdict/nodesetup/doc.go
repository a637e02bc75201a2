// Package nodesetup sets what the proxy needs on its host, as kube-proxy does: the size and the timeouts of connection
// tracking, and the OOM score of the process. A write that the kernel refuses is reported with what follows from it, and
// is no reason to end: most of these settings matter under load only, and an init container may have made them.
//
//	nodesetup.go  the settings, and how they are written
package nodesetup
