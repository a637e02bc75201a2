package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/config"
)

// shipped holds the objects of base/daemonset.yaml.
type shipped struct {
	account corev1.ServiceAccount
	role    rbacv1.ClusterRole
	binding rbacv1.ClusterRoleBinding
	config  corev1.ConfigMap
	daemons appsv1.DaemonSet
}

// container returns the container of the proxy.
func (s *shipped) container() *corev1.Container { return &s.daemons.Spec.Template.Spec.Containers[0] }

// load reads base/daemonset.yaml. The test fails if a field is unknown to the API, or if there is an unexpected object.
func load(t *testing.T) *shipped {
	t.Helper()
	text, err := os.ReadFile("base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := &shipped{}
	wanted := map[metav1.TypeMeta]any{
		{APIVersion: "v1", Kind: "ServiceAccount"}:                               &s.account,
		{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}:        &s.role,
		{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}: &s.binding,
		{APIVersion: "v1", Kind: "ConfigMap"}:                                    &s.config,
		{APIVersion: "apps/v1", Kind: "DaemonSet"}:                               &s.daemons,
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		into, ok := wanted[kind]
		if !ok {
			t.Fatalf("unexpected or second object: %+v", kind)
		}
		delete(wanted, kind)
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
	}
	if len(wanted) > 0 {
		t.Fatalf("missing: %v", wanted)
	}
	if n := len(s.daemons.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%d containers, want 1", n)
	}
	return s
}

// arguments returns those of the container of the proxy. The files of the ConfigMap are in a folder of this host.
func (s *shipped) arguments(t *testing.T) (args []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range s.config.Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range s.container().Args {
		args = append(args, strings.ReplaceAll(a, s.container().VolumeMounts[0].MountPath, dir))
	}
	return args
}

// TestConfigMapIsMounted: each container that has the flag --config has the file of the ConfigMap there.
func TestConfigMapIsMounted(t *testing.T) {
	s := load(t)
	pod := s.daemons.Spec.Template.Spec
	if len(pod.Volumes) == 0 || pod.Volumes[0].ConfigMap == nil || pod.Volumes[0].ConfigMap.Name != s.config.Name {
		t.Fatalf("the volumes are %+v, the ConfigMap is %s", pod.Volumes, s.config.Name)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		mounts := slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name != pod.Volumes[0].Name })
		if len(mounts) != 1 {
			t.Errorf("%s mounts %+v", c.Name, c.VolumeMounts)
			continue
		}
		reads := func(file string) bool { return slices.Contains(c.Args, "--config="+mounts[0].MountPath+"/"+file) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.config.Data)), reads) {
			t.Errorf("%s has the arguments %v, and the ConfigMap %v at %s", c.Name, c.Args, s.config.Data, mounts[0].MountPath)
		}
	}
}

// TestStateIsMounted: the proxy finds in --state-dir what the container before it wrote, also when the pod was another one.
func TestStateIsMounted(t *testing.T) {
	s := load(t)
	dir := config.Default().StateDir
	mounted := slices.ContainsFunc(s.container().VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == dir && !m.ReadOnly && slices.ContainsFunc(s.daemons.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == m.Name && v.HostPath != nil && v.HostPath.Path == dir
		})
	})
	if !mounted {
		t.Errorf("%s is not a folder of the host: %+v", dir, s.container().VolumeMounts)
	}
}

// TestTimeToLeave: what ends "verdict leave" waits for its limit, and for the packets that it resets after that.
func TestTimeToLeave(t *testing.T) {
	s, leave := load(t), unit(t, "verdict-leave.service")["Service"]
	grace, err := time.ParseDuration(leave["TimeoutStopSec"] + "s")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		command []string
		grace   time.Duration
	}{
		"the DaemonSet": {s.container().Lifecycle.PreStop.Exec.Command, time.Duration(*s.daemons.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second},
		"the unit":      {strings.Fields(leave["ExecStop"]), grace},
	} {
		const resets = 5 * time.Second
		timeout, _ := strings.CutPrefix(tt.command[len(tt.command)-1], "--timeout=")
		if limit, err := time.ParseDuration(timeout); err != nil || tt.grace <= limit+resets {
			t.Errorf("%s gives %v %s, want more than %s and %s: %v", name, tt.command, tt.grace, limit, resets, err)
		}
	}
}

// TestInitContainer: the init container has more privileges than the proxy, and ends by itself.
func TestInitContainer(t *testing.T) {
	s := load(t)
	list := s.daemons.Spec.Template.Spec.InitContainers
	if len(list) != 1 {
		t.Fatalf("%d init containers, want 1", len(list))
	}
	c := list[0]
	if c.Image != s.container().Image || !slices.Equal(c.Args[:2], []string{"run", "--init-only"}) || !*c.SecurityContext.Privileged {
		t.Errorf("image %s, arguments %v, %+v", c.Image, c.Args, c.SecurityContext)
	}
	for _, arg := range c.Args[2:] {
		if !slices.Contains(s.container().Args, arg) {
			t.Errorf("the proxy itself does not have %s", arg)
		}
	}
}

func TestNamesInDaemonSetFitTogether(t *testing.T) {
	s := load(t)
	pod := s.daemons.Spec.Template
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: s.account.Name, Namespace: s.account.Namespace}
	if !slices.Equal(s.binding.Subjects, []rbacv1.Subject{subject}) {
		t.Errorf("the binding has the subjects %v, the account is %v", s.binding.Subjects, subject)
	}
	if ref := s.binding.RoleRef; ref.Kind != "ClusterRole" || ref.Name != s.role.Name || ref.APIGroup != rbacv1.GroupName {
		t.Errorf("the binding refers to %v, the role is %s", ref, s.role.Name)
	}
	if pod.Spec.ServiceAccountName != s.account.Name || s.daemons.Namespace != s.account.Namespace {
		t.Errorf("pods run as %s in %s", pod.Spec.ServiceAccountName, s.daemons.Namespace)
	}
	if len(s.daemons.Spec.Selector.MatchLabels) == 0 {
		t.Error("the selector selects everything")
	}
	for name, value := range s.daemons.Spec.Selector.MatchLabels {
		if pod.Labels[name] != value {
			t.Errorf("the selector wants the label %s=%s, which pods do not have", name, value)
		}
	}
}

// TestDaemonSetRunsOnEveryNode: the pods run on every node, even before the pod network works.
func TestDaemonSetRunsOnEveryNode(t *testing.T) {
	s := load(t)
	pod := s.daemons.Spec.Template.Spec
	if !pod.HostNetwork || pod.PriorityClassName != "system-node-critical" || pod.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("hostNetwork %v, priority class %q, nodes %v", pod.HostNetwork, pod.PriorityClassName, pod.NodeSelector)
	}
	if !slices.Equal(pod.Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}) {
		t.Errorf("the pods do not tolerate every taint: %v", pod.Tolerations)
	}
	requests := s.container().Resources.Requests
	if requests.Cpu().IsZero() || requests.Memory().IsZero() {
		t.Errorf("requests %v: the proxy needs some, or other pods could starve it", requests)
	}
	if len(s.container().Resources.Limits) > 0 {
		t.Errorf("limits %v: a limit would slow the proxy down when many objects change", s.container().Resources.Limits)
	}
}

func TestProbesOfDaemonSetAskWhereVerdictListens(t *testing.T) {
	_, port, _ := strings.Cut(config.Default().HealthzBindAddress, ":")
	c := load(t).container()
	for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Errorf("no probe for %s", path)
			continue
		}
		if get := probe.HTTPGet; get.Path != path || get.Port.String() != port || get.Host != "127.0.0.1" {
			t.Errorf("the probe asks %s:%s%s, want 127.0.0.1:%s%s", get.Host, get.Port.String(), get.Path, port, path)
		}
	}
}

// TestDaemonSetDefinesItsVariables: Kubernetes does not replace a $(NAME) that is not defined.
func TestDaemonSetDefinesItsVariables(t *testing.T) {
	c := load(t).container()
	used := regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(strings.Join(c.Args, " "), -1)
	if !slices.Contains(c.Args, "--hostname-override=$(NODE_NAME)") {
		t.Errorf("the arguments do not name the node: %v", c.Args)
	}
	for _, u := range used {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == u[1] }) {
			t.Errorf("%s is not defined", u[1])
		}
	}
	for _, e := range c.Env {
		if e.Name == "NODE_NAME" && (e.ValueFrom == nil || e.ValueFrom.FieldRef == nil || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName") {
			t.Errorf("NODE_NAME is not the node's name: %+v", e)
		}
	}
}

// TestImageNamesNoRegistry: the project does not publish images, so the name must not point to a registry.
func TestImageNamesNoRegistry(t *testing.T) {
	if image := load(t).container().Image; strings.Contains(image, "/") {
		t.Errorf("image %s", image)
	}
}
