package kubeproxyconfig

import (
	"fmt"

	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Write returns a file with the values of flags. Fields without meaning keep the value that they have in c.
func Write(c *v1alpha1.KubeProxyConfiguration, flag func(name string) string) ([]byte, error) {
	out := c.DeepCopy()
	out.APIVersion, out.Kind = apiVersion, kind
	out.Mode = v1alpha1.ProxyMode(flag("proxy-mode"))
	found := leaves(out)
	for _, f := range Fields() {
		if f.Flag == "" || !f.counts(out) {
			continue
		}
		if err := setText(found[f.Path], flag(f.Flag)); err != nil {
			return nil, fmt.Errorf("write field %s of the configuration from --%s=%s: %w", f.Path, f.Flag, flag(f.Flag), err)
		}
	}
	return yaml.Marshal(out)
}
