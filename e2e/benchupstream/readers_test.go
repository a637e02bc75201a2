package benchupstream

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var (
	readers     = flag.String("readers", "50,200,500", "numbers of readers for BenchmarkReaders, separated by commas")
	readersCase = flag.String("readers-case", "1000:10000", "their cluster, SERVICES:ENDPOINTS")
	outageTime  = flag.Duration("outage", 10*time.Second, "how long the API server is away")
	idleTime    = flag.Duration("idle", 2*time.Minute, "how long the first number of readers has nothing to read")
)

// readersVariable has the kind, the number and the kubeconfig of readers. A process with it is nothing but these readers.
const readersVariable = "VERDICT_READERS"

func TestMain(m *testing.M) {
	if play := os.Getenv(readersVariable); play != "" {
		if err := playReaders(play); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// readerKinds start a reader. It returns what reports whether the reader has a Service.
func readerKinds() map[string]func(ctx context.Context, kubeconfig string) (has func(string) bool, err error) {
	return map[string]func(context.Context, string) (func(string) bool, error){"verdict": readAsVerdict, "kube-proxy": readAsUpstream}
}

// readAsVerdict is the reader of Verdict. Of each object it keeps what Verdict keeps.
func readAsVerdict(ctx context.Context, kubeconfig string) (func(string) bool, error) {
	client, err := cluster.NewClient(cluster.Config{Kubeconfig: kubeconfig, QPS: 50, Burst: 100, UserAgent: "verdict"})
	if err != nil {
		return nil, err
	}
	store := state.NewStore()
	source := cluster.New(cluster.Options{Client: client, NodeName: ownNode, Store: store, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = source.Run(ctx) }() // ends with the context
	return func(name string) bool {
		service, _ := store.Service(state.Name{Namespace: metav1.NamespaceDefault, Name: name})
		return service != nil
	}, nil
}

// readAsUpstream has the informers of kube-proxy 1.37 (cmd/kube-proxy/app/server.go and pkg/proxy/node.go). They keep only
// the names of objects, which changes nothing on the wire.
func readAsUpstream(ctx context.Context, kubeconfig string) (func(string) bool, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType, config.QPS, config.Burst, config.UserAgent = runtime.ContentTypeProtobuf, 5, 10, "kube-proxy"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := func(labels, fields string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 15*time.Minute, informers.WithTransform(nameOnly),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = labels, fields }))
	}
	all := []informers.SharedInformerFactory{
		factory("!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"), factory("!service.kubernetes.io/headless", ""),
		factory("", ""), factory("", "metadata.name="+ownNode),
	}
	services := all[0].Core().V1().Services().Informer()
	all[1].Discovery().V1().EndpointSlices().Informer()
	all[2].Networking().V1().ServiceCIDRs().Informer()
	all[3].Core().V1().Nodes().Informer()
	for _, f := range all {
		f.StartWithContext(ctx)
	}
	return func(name string) bool {
		_, there, _ := services.GetStore().GetByKey(metav1.NamespaceDefault + "/" + name)
		return there
	}, nil
}

func nameOnly(o any) (any, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return o, nil //nolint:nilerr // a tombstone
	}
	kept := metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion()}
	switch o.(type) {
	case *corev1.Service:
		return &corev1.Service{ObjectMeta: kept}, nil
	case *discoveryv1.EndpointSlice:
		return &discoveryv1.EndpointSlice{ObjectMeta: kept}, nil
	}
	return o, nil
}

// playReaders is the process of the readers. Each line of its input is a verb and the name of a Service; it answers with a line
// when all readers have that Service. Verbs are start (all at once), roll (replace a tenth at a time) and wait.
func playReaders(play string) error {
	var kind, kubeconfig string
	var n int
	if _, err := fmt.Sscan(play, &kind, &n, &kubeconfig); err != nil {
		return err
	}
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	g := &readerGroup{begin: readerKinds()[kind], kubeconfig: kubeconfig, has: make([]func(string) bool, n), stop: make([]func(), n)}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, service, _ := strings.Cut(lines.Text(), " ")
		batch := n
		if verb == "roll" {
			batch = max(1, n/10)
		}
		for first := 0; first < n; first += batch {
			if err := g.turn(verb, service, first, min(first+batch, n)); err != nil {
				return err
			}
		}
		fmt.Println("all have", service)
	}
	return nil
}

// readerGroup are the readers of a process.
type readerGroup struct {
	begin      func(context.Context, string) (func(string) bool, error)
	kubeconfig string
	has        []func(string) bool
	stop       []func()
	started    int
}

// turn starts some readers, or starts them again, and waits until each has a Service.
func (g *readerGroup) turn(verb, service string, first, end int) (err error) {
	for i := first; i < end && verb != "wait"; i++ {
		if g.stop[i] != nil {
			g.stop[i]()
		}
		file, again := g.ownKubeconfig()
		if again != nil {
			return again
		}
		ctx, stop := context.WithCancel(context.Background())
		g.stop[i] = stop
		if g.has[i], err = g.begin(ctx, file); err != nil {
			return err
		}
	}
	for i := first; i < end; i++ {
		for !g.has[i](service) {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// ownKubeconfig writes a kubeconfig whose certificates differ by a comment. Otherwise, client-go would let all readers share
// one connection.
func (g *readerGroup) ownKubeconfig() (string, error) {
	config, err := clientcmd.LoadFromFile(g.kubeconfig)
	if err != nil {
		return "", err
	}
	g.started++
	for _, c := range config.Clusters {
		c.CertificateAuthorityData = fmt.Appendf(c.CertificateAuthorityData, "# reader %d\n", g.started)
	}
	file := fmt.Sprintf("%s-%d", g.kubeconfig, os.Getpid())
	return file, clientcmd.WriteToFile(*config, file)
}

// BenchmarkReaders lets many readers follow one API server, each over a connection of its own, and reports what one costs: at
// the start of all, when a Service is created, when a tenth of them restarts at a time, and when the API server comes back.
func BenchmarkReaders(b *testing.B) {
	s, err := parseShape(*readersCase)
	lab.Must(b, err)
	sayMachine()
	p := newPlane(b, s)
	lab.Must(b, p.control.Kill(apiserver.Server), p.control.Restart(apiserver.Server))
	boot := p.take(b, nil) // what a start of the API server takes without readers
	for i, text := range strings.Split(*readers, ",") {
		n, err := strconv.Atoi(text)
		lab.Must(b, err)
		for _, kind := range []string{"verdict", "kube-proxy"} {
			b.Run("readers="+text+"/reader="+kind, func(b *testing.B) {
				f := measure.Figures{}
				for b.Loop() {
					p.read(b, kind, n, i == 0, boot, f)
				}
				for unit, value := range f {
					b.ReportMetric(value, unit)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// read measures readers of a kind in a process on a node of their own.
func (p *plane) read(b testing.TB, kind string, n int, idle bool, boot reading, f measure.Figures) {
	node := &lab.Namespace{Namespace: netns.New(b)}
	p.connect(b, node)
	kubeconfig, err := p.control.Kubeconfig(apiserver.KubeProxy)
	lab.Must(b, err)
	var faults bytes.Buffer
	process := exec.Command(os.Args[0])
	process.Env, process.Stderr = append(os.Environ(), fmt.Sprint(readersVariable, "=", kind, " ", n, " ", kubeconfig)), &faults
	orders, noOrders := process.StdinPipe()
	answers, noAnswers := process.StdoutPipe()
	lab.Must(b, noOrders, noAnswers, node.Start(process))
	defer func() { _ = orders.Close(); _ = process.Wait() }() // its end is not measured
	lines := bufio.NewScanner(answers)
	step := func(name, verb string, before reading) {
		marker := p.marker(b)
		began := time.Now()
		fmt.Fprintln(orders, verb, marker)
		if !lines.Scan() {
			b.Fatalf("the readers have ended: %s", faults.String())
		}
		f[name+"-all-current-ns"] = float64(time.Since(began))
		p.take(b, node).report(before, name, n, f)
	}
	step("start", "start", p.take(b, node))
	step("change", "wait", p.take(b, node))
	if idle {
		before := p.take(b, node)
		time.Sleep(*idleTime)
		p.take(b, node).report(before, "idle", n, f)
	}
	step("rolling-restart", "roll", p.take(b, node))
	before := p.take(b, node)
	lab.Must(b, p.control.Kill(apiserver.Server))
	time.Sleep(*outageTime)
	lab.Must(b, p.control.Restart(apiserver.Server))
	before.requests, before.cpu = boot.requests, boot.cpu // of the new process
	step("outage", "wait", before)
}

// marker creates a Service that did not exist before, and returns its name.
func (p *plane) marker(b testing.TB) string {
	made, err := p.client().CoreV1().Services(metav1.NamespaceDefault).Create(b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "marker-"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	lab.Must(b, err)
	return made.Name
}

// reading is what readers and their API server have used until a moment.
type reading struct {
	received, sent float64       // bytes on the link of the readers
	requests       float64       // that were begun
	cpu            time.Duration // of the API server
}

// report reports the use since an earlier moment, by reader, and what 5,000 would take of the API server's time.
func (r reading) report(before reading, step string, n int, f measure.Figures) {
	each := float64(n)
	f[step+"-received-kB/reader"] = (r.received - before.received) / 1000 / each
	f[step+"-sent-kB/reader"] = (r.sent - before.sent) / 1000 / each
	f[step+"-requests/reader"] = (r.requests - before.requests) / each
	f[step+"-cpu-of-one-ns"] = float64(r.cpu-before.cpu) / each
	f[step+"-cpu-of-5000-sec"] = 5000 * (r.cpu - before.cpu).Seconds() / each
}

// take reads the counters. Without a node, there are no readers.
func (p *plane) take(b testing.TB, node *lab.Namespace) (r reading) {
	b.Helper()
	for _, pid := range measure.Children(os.Getpid()) {
		if process, err := measure.Inspect(pid); err == nil && process.Name == "kube-apiserver" {
			r.cpu = process.CPU
		}
	}
	var links []byte
	if node != nil {
		node.MustDo(b, func() (err error) {
			links, err = os.ReadFile("/proc/thread-self/net/dev")
			return err
		})
	}
	for line := range strings.Lines(string(links)) {
		name, counters, _ := strings.Cut(line, ":")
		if fields := strings.Fields(counters); strings.HasPrefix(strings.TrimSpace(name), "node-") {
			received, noReceived := strconv.ParseFloat(fields[0], 64)
			sent, noSent := strconv.ParseFloat(fields[8], 64)
			lab.Must(b, noReceived, noSent)
			r.received, r.sent = received, sent
		}
	}
	text, err := p.client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	lab.Must(b, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	lab.Must(b, err)
	for _, family := range []string{"apiserver_request_total", "apiserver_longrunning_requests"} {
		for _, m := range families[family].GetMetric() {
			r.requests += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return r
}

// BenchmarkSent takes apart what the API server sends for a list: what a proxy reads, and what it does not.
func BenchmarkSent(b *testing.B) {
	s, err := parseShape(*readersCase)
	lab.Must(b, err)
	p := newPlane(b, s)
	for b.Loop() {
		services, err := p.client().CoreV1().Services("").List(b.Context(), metav1.ListOptions{})
		lab.Must(b, err)
		slices, err := p.client().DiscoveryV1().EndpointSlices("").List(b.Context(), metav1.ListOptions{})
		lab.Must(b, err)
		var all, managed, meta, used float64
		for i := range services.Items {
			o := &services.Items[i]
			all += float64(o.Size())
			managed += without(o.Size, func() { o.ManagedFields = nil })
			meta += without(o.Size, func() { o.ObjectMeta = named(o.ObjectMeta) })
			used += float64(o.Size())
		}
		report(b, "service", len(services.Items), all, managed, meta, used)
		all, managed, meta, used = 0, 0, 0, 0
		targets := 0.0
		for i := range slices.Items {
			o := &slices.Items[i]
			all += float64(o.Size())
			managed += without(o.Size, func() { o.ManagedFields = nil })
			meta += without(o.Size, func() { o.ObjectMeta = named(o.ObjectMeta) })
			targets += without(o.Size, func() {
				for j := range o.Endpoints {
					o.Endpoints[j].TargetRef = nil
				}
			})
			used += float64(o.Size())
		}
		report(b, "slice", len(slices.Items), all, managed, meta, used)
		b.ReportMetric(targets/float64(len(slices.Items)), "slice-targetRefs-bytes")
		for _, resource := range []string{"api/v1/services", "apis/discovery.k8s.io/v1/endpointslices"} {
			for _, encoding := range []string{"identity", "gzip"} {
				b.ReportMetric(p.download(b, resource, encoding), filepath.Base(resource)+"-list-"+encoding+"-kB")
			}
		}
		b.ReportMetric(0, "ns/op")
	}
}

// without is how many bytes an object loses.
func without(size func() int, change func()) float64 {
	before := size()
	change()
	return float64(before - size())
}

// named is what a proxy reads of an object's metadata.
func named(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion, Annotations: m.Annotations}
	if name := m.Labels[discoveryv1.LabelServiceName]; name != "" {
		kept.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	}
	return kept
}

func report(b *testing.B, kind string, objects int, all, managed, meta, used float64) {
	n := float64(objects)
	for what, sum := range map[string]float64{"": all, "managedFields-": managed, "other-metadata-": meta, "used-": used} {
		b.ReportMetric(sum/n, kind+"-"+what+"bytes")
	}
}

// download lists a resource as a proxy does, and returns how many kilobytes the body has on the wire.
func (p *plane) download(b testing.TB, resource, encoding string) float64 {
	config := p.control.Config()
	config.DisableCompression = true // or else the client decompresses the body
	transport, err := restclient.TransportFor(config)
	lab.Must(b, err)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, config.Host+"/"+resource+"?resourceVersion=0", http.NoBody)
	lab.Must(b, err)
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	request.Header.Set("Accept-Encoding", encoding)
	answer, err := transport.RoundTrip(request)
	lab.Must(b, err)
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	lab.Must(b, err)
	return float64(n) / 1000
}
