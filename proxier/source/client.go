package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config says how to reach the API server.
type Config struct {
	Kubeconfig string // file; empty: the service account of the pod, unless Master is set
	Master     string // URL; wins over the kubeconfig's
	QPS        float32
	Burst      int
	UserAgent  string
}

// NewClient makes a client that speaks protobuf, which costs a third of the memory and CPU of JSON.
func NewClient(c Config) (kubernetes.Interface, error) {
	config, err := restConfig(c)
	if err != nil {
		return nil, fmt.Errorf("read access to the API server (kubeconfig %q, master %q): %w", c.Kubeconfig, c.Master, err)
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = c.QPS
	config.Burst = c.Burst
	config.UserAgent = c.UserAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return client, nil
}

func restConfig(c Config) (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: c.Master}},
	).ClientConfig()
}
