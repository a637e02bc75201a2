// Command etcd is upstream's etcd, the API server's storage. It is a module of its own, so
// that Kubernetes does not decide about the versions of its dependencies.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
