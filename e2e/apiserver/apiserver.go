package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// ControlPlane is an API server with its etcd, in one network namespace.
type ControlPlane struct {
	Client  kubernetes.Interface // with all rights
	dynamic dynamic.Interface    // the same

	ns        *lab.Namespace
	server    string
	files     files
	commands  [][]string     // by Part
	processes []*lab.Process // by Part
}

// Options of a control plane.
type Options struct {
	// Binaries is the folder with etcd and kube-apiserver (see e2e/controlplane/build.sh).
	Binaries string
	// Dir takes data, keys and logs.
	Dir string
	// Namespace is where both run. Address is the address of the API server in it.
	Namespace *lab.Namespace
	Address   netip.Addr
	// ServiceRanges is the value of --service-cluster-ip-range.
	ServiceRanges string
	// Arguments are further flags of kube-apiserver.
	Arguments []string
	// Pods says that kubelets run pods: the Node authorizer is on, pods get tokens of their ServiceAccounts, and the Service
	// kubernetes has its endpoint.
	Pods bool
	// Users are further users, such as the kubelets. Kubeconfig writes the file for one.
	Users []User
	// Certified are further addresses of the API server for its certificate, such as its cluster IP.
	Certified []netip.Addr
}

// User is a user with a fixed token.
type User struct{ Name, Group string }

// Users that each API server knows. The default RBAC policy lets system:kube-proxy read what kube-proxy needs.
const (
	Admin     = "admin" // with all rights
	KubeProxy = "system:kube-proxy"
)

// tokens is the content of the file with the fixed tokens.
func tokens(further []User) string {
	text := ""
	for _, u := range append([]User{{Admin, "system:masters"}, {KubeProxy, ""}}, further...) {
		text += fmt.Sprintf("%s,%s,%s,%s\n", token(u.Name), u.Name, u.Name, u.Group)
	}
	return text
}

func token(user string) string { return "token-of-" + user }

// readyPatience is how long the API server may take to start; it takes 4 s on an idle machine.
const readyPatience = 2 * time.Minute

// StartIn starts a control plane in a namespace of its own, which only the node of a world reaches.
func StartIn(w *lab.World, o Options) (*ControlPlane, error) {
	ns, addr, err := w.Attach("control plane")
	if err != nil {
		return nil, err
	}
	o.Namespace, o.Address = ns, addr
	return Start(o)
}

// Start starts etcd and kube-apiserver and waits until they are ready.
func Start(o Options) (*ControlPlane, error) {
	c := &ControlPlane{ns: o.Namespace, server: "https://" + netip.AddrPortFrom(o.Address, 6443).String()}
	var err error
	if c.files, err = writeCredentials(o.Dir, append([]netip.Addr{o.Address}, o.Certified...), tokens(o.Users)); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	c.commands = [][]string{Etcd: c.etcd(o), Server: c.apiserver(o)}
	for p := range c.commands {
		c.processes = append(c.processes, nil)
		if err := c.start(Part(p)); err != nil {
			c.processes = c.processes[:p]
			return nil, errors.Join(err, c.Close())
		}
	}
	if c.Client, err = kubernetes.NewForConfig(c.Config()); err == nil {
		c.dynamic, err = dynamic.NewForConfig(c.Config())
	}
	if err == nil {
		err = c.ready()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *ControlPlane) etcd(o Options) []string {
	return []string{
		filepath.Join(o.Binaries, "etcd"), "--data-dir=" + filepath.Join(o.Dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
	}
}

func (c *ControlPlane) apiserver(o Options) []string {
	mode := []string{"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"}
	if o.Pods {
		mode = []string{"--authorization-mode=Node,RBAC", "--kubelet-preferred-address-types=InternalIP"}
	}
	return slices.Concat([]string{
		filepath.Join(o.Binaries, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
		"--bind-address=0.0.0.0", "--advertise-address=" + o.Address.String(),
		"--tls-cert-file=" + c.files.path("server.crt"), "--tls-private-key-file=" + c.files.path("server.key"),
		"--token-auth-file=" + c.files.path("tokens.csv"),
		"--service-account-key-file=" + c.files.path("sa.key"), "--service-account-signing-key-file=" + c.files.path("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=" + o.ServiceRanges, "--enable-priority-and-fairness=false",
		"--service-node-port-range=30000-32767",
		"--allow-privileged=true", // as kubeadm does; without it, no DaemonSet may have a privileged init container
	}, mode, o.Arguments)
}

// Config is the configuration of a client with all rights. The client connects from inside the API server's namespace.
func (c *ControlPlane) Config() *rest.Config {
	return &rest.Config{
		Host: c.server, BearerToken: token(Admin), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.files.ca},
		Dial:            c.ns.DialContext,
	}
}

// ready waits until the API server is ready or has ended.
func (c *ControlPlane) ready() error {
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, readyPatience, true, func(ctx context.Context) (bool, error) {
		_, last = c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return last == nil, errors.Join(c.processes[Etcd].EndedByItself(), c.processes[Server].EndedByItself())
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the API server is not ready after %s: %w; its log ends:\n%s", readyPatience, last, c.processes[Server].Log(10))
	}
	return err
}

// Kubeconfig writes a kubeconfig for a user of the options, or one that each API server knows. A new API server denies others
// than Admin everything until it has loaded its RBAC rules.
func (c *ControlPlane) Kubeconfig(user string) (string, error) {
	return c.files.kubeconfig(strings.ReplaceAll(user, ":", "-"), c.server, token(user))
}

// File is the path of a file that other parts of a cluster need: ca.crt (the authority of the server's certificate) or
// sa.key (the key that signs tokens of ServiceAccounts).
func (c *ControlPlane) File(name string) string { return c.files.path(name) }

// ServiceAccount writes a kubeconfig with a token of a ServiceAccount, like that of a pod that runs under it.
func (c *ControlPlane) ServiceAccount(namespace, name string) (string, error) {
	accounts, request := c.Client.CoreV1().ServiceAccounts(namespace), &authenticationv1.TokenRequest{}
	got, err := accounts.CreateToken(context.Background(), name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return c.files.kubeconfig(name, c.server, got.Status.Token)
}

// Close kills the processes and removes etcd's data, which is of no use afterwards.
func (c *ControlPlane) Close() error {
	var errs []error
	for i := len(c.processes) - 1; i >= 0; i-- {
		errs = append(errs, c.processes[i].Kill())
	}
	return errors.Join(append(errs, os.RemoveAll(c.files.path("etcd")), os.RemoveAll(c.files.path("etcd-saved")))...)
}
