// Command etcd is upstream's etcd, the storage of the API server. It has its own Go module, so that Kubernetes does not
// choose the versions of its dependencies.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
