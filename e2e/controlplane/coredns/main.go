// Command coredns is CoreDNS with the plugins that a cluster needs. It has its own Go module, so that Kubernetes does not
// choose the versions of its dependencies. Other than in upstream's order, template comes last: it denies each name that
// is not of the cluster.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	dnsserver.Directives = []string{"ready", "health", "errors", "loadbalance", "kubernetes", "template"}
}

func main() { coremain.Run() }
