//go:build e2e

package takeover

import (
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// command runs verdict on the node.
func (b *bed) command(t *testing.T, args ...string) (text string, exit int) {
	t.Helper()
	cmd := exec.Command(programs.verdict, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	lab.Must(t, b.Node.Start(cmd))
	_ = cmd.Wait() // the exit code is part of the answer
	return out.String(), cmd.ProcessState.ExitCode()
}

// operator returns a kubeconfig that may read pods, and makes a pod at the address of pod a.
func (b *bed) operator(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}}
	role := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "operator"}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "client"},
		Spec: corev1.PodSpec{
			NodeName: lab.NodeName, ServiceAccountName: "operator", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range lab.Families() {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: lab.PodAddress(f, "a").String()})
	}
	pod.Status.PodIP = pod.Status.PodIPs[0].IP
	lab.Must(t, b.plane.Put(t.Context(), account, role, pod))
	kubeconfig, err := b.plane.ServiceAccount("default", "operator")
	lab.Must(t, err)
	return kubeconfig
}

// TestCommandsAskTheAPIServer: "explain" takes the address of a pod from the API server, and "diff" compares the kernel
// with its objects.
func TestCommandsAskTheAPIServer(t *testing.T) {
	b := newBed(t)
	daemon := b.start(t, "verdict", nil, []string{programs.verdict, "run"}, "tables written")
	kubeconfig := b.operator(t)
	for _, f := range lab.Families() {
		at, source := lab.AddressPort(f, "VIP1", 80).String(), lab.PodAddress(f, "a").String()
		got, exit := b.command(t, "explain", "pod/default/client", at, "--kubeconfig", kubeconfig)
		want, _ := b.command(t, "explain", source, at)
		if exit != 0 || got != want || !strings.Contains(got, "from "+source+" to ") {
			t.Errorf("%s: explain of a pod: exit code %d\n%s\nby address:\n%s", f, exit, got, want)
		}
	}
	for _, args := range [][]string{
		{"explain", "pod/default/none", "10.96.0.11:80", "--kubeconfig", kubeconfig},
		{"explain", "pod/default/client", "10.96.0.11:80", "--kubeconfig", b.kubeconfig}, // it may not read pods
	} {
		if got, exit := b.command(t, args...); exit != 1 || !strings.Contains(got, "give the address of the pod") {
			t.Errorf("%s: exit code %d: %s", strings.Join(args, " "), exit, got)
		}
	}
	b.checkDiff(t, daemon)
}

// checkDiff changes an object while no daemon runs.
func (b *bed) checkDiff(t *testing.T, daemon *lab.Process) {
	t.Helper()
	diff := []string{
		"diff", "--kubeconfig", b.kubeconfig, "--hostname-override", lab.NodeName,
		"--cluster-cidr", lab.MustText(lab.IPv4, "PODS") + "," + lab.MustText(lab.IPv6, "PODS"),
	}
	if got, exit := b.command(t, diff...); exit != 0 || strings.Contains(got, "element") {
		t.Errorf("diff to the API server: exit code %d\n%s", exit, got)
	}
	lab.Must(t, daemon.Stop())
	s := newSlice(lab.IPv4)
	s.Endpoints[1].Addresses[0] = lab.PodAddress(lab.IPv4, "b").String()
	lab.Must(t, b.plane.Put(t.Context(), s))
	got, exit := b.command(t, diff...)
	gone, come := lab.PodAddress(lab.IPv4, "c").String(), lab.PodAddress(lab.IPv4, "b").String()
	if exit != 1 || !hasDifference(got, "delete element", gone) || !hasDifference(got, "add element", come) || hasDifference(got, "add element", gone) {
		t.Errorf("diff after a change: exit code %d\n%s", exit, got)
	}
}

func hasDifference(text, verb, word string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, verb) && strings.Contains(line, word) {
			return true
		}
	}
	return false
}
