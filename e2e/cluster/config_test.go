//go:build e2e

package cluster

import (
	"fmt"
	"strings"
)

// containerd is the configuration of containerd.
func containerd(dir string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s/cni"
`, imageName("pause"), dir)
}

// cni is the configuration of the node's network plugins. Pods have routed addresses, without translation.
func cni(number int) string {
	var ranges []string
	for _, p := range podsOf(number) {
		ranges = append(ranges, fmt.Sprintf(`[{"subnet": %q}]`, p))
	}
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "e2e", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
   "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}], "ranges": [%s]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, strings.Join(ranges, ", "))
}

// kubelet is the configuration of the kubelet.
func kubelet(n *node) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: %s
authentication: {anonymous: {enabled: true}} # the API server asks without a certificate; only this machine can ask
authorization: {mode: AlwaysAllow}
oomScoreAdj: 0
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
shutdownGracePeriod: %s
shutdownGracePeriodCriticalPods: %s
`, n.name(), n.path("resolv.conf"), shutdownGrace, shutdownGraceCritical)
}
