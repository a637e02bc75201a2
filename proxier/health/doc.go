// Package health shows to the outside whether the proxy of this node works: /healthz, /livez and /readyz for the proxy
// itself, and a healthCheckNodePort server for each Service that asks for one. The answers are those of upstream
// kube-proxy 1.37, byte for byte where a load balancer or a probe can see them.
//
//	proxy.go    the health of the proxy: /healthz, /livez and /readyz
//	servers.go  the healthCheckNodePort servers, and their answers
//	limiter.go  what keeps strangers from filling a server with connections
//
// The package knows only what the loop reports. It neither plans nor programs.
package health
