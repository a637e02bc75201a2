//go:build !nokernel

package prober

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// askerProcess has this program ask questions instead of running tests, in the network namespace of the node.
const askerProcess = "VERDICT_TEST_ASKER"

func TestMain(m *testing.M) {
	if os.Getenv(askerProcess) != "" {
		askForTests()
		return
	}
	os.Exit(netns.Main(m))
}

// job is one question that is asked many times.
type job struct {
	Question probe.Question
	Count    int
	AtOnce   int
	Cancel   time.Duration // after which the context of each question ends; 0: it does not
	Pause    time.Duration // after each question
	NoFiles  bool          // the process may open no more files
}

// done is the end of a job.
type done struct {
	Answers  map[string]int // by fault and words
	MaxFlows int
	Flows    int // that are left
	Files    int // more than before
	CPU      time.Duration
	Took     time.Duration
	Memory   uint64 // most bytes of the heap and of stacks
	Error    string
}

// askForTests does jobs from its input until that ends.
func askForTests() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var j job
		if err := in.Decode(&j); err != nil {
			return
		}
		d, err := j.do()
		if err != nil {
			d.Error = err.Error()
		}
		if err := out.Encode(d); err != nil {
			panic(err) // nobody listens
		}
	}
}

func (j *job) do() (d done, err error) {
	f, err := conntrack.OpenForgetter(conntrack.Options{}, func(failed error) { err = failed })
	if err != nil {
		return d, err
	}
	asker, others := New(f.Forget), flowsHere()
	once := job{Question: j.Question, Count: 1, AtOnce: 1, Cancel: j.Cancel} // opens what every process opens once
	once.ask(asker)
	files, cpu, began := openFiles(), cpuTime(), time.Now()
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		d.watch(stop)
	}()
	d.Answers, err = j.askPoorly(asker)
	d.CPU, d.Took = cpuTime()-cpu, time.Since(began)
	close(stop)
	<-watched
	if d.Files = openFiles() - files; err != nil {
		return d, err
	}
	if j.Question.Protocol == state.UDP {
		time.Sleep(late) // until then, answers are expected that come too late
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) { // packets may be on their way
		if d.Flows = flowsHere() - others; d.Flows <= 0 || time.Now().After(end) {
			return d, errors.Join(f.Close(), err)
		}
	}
}

// askPoorly asks, without files if the job says so.
func (j *job) askPoorly(a *Asker) (map[string]int, error) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil || !j.NoFiles {
		return j.ask(a), err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		return nil, err
	}
	answers := j.ask(a)
	return answers, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
}

func (j *job) ask(a *Asker) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers, left := map[string]int{}, j.Count
	for range j.AtOnce {
		wg.Go(func() {
			for {
				mu.Lock()
				left--
				mine := left >= 0
				mu.Unlock()
				if !mine {
					return
				}
				ctx, cancel := context.WithCancel(context.Background())
				if j.Cancel > 0 {
					time.AfterFunc(j.Cancel, cancel)
				}
				answer := a.Ask(ctx, &j.Question)
				cancel()
				mu.Lock()
				answers[fmt.Sprintf("%v: %s", answer.Fault, answer.Why)]++
				mu.Unlock()
				time.Sleep(j.Pause)
			}
		})
	}
	wg.Wait()
	return answers
}

func (d *done) watch(stop chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
			d.MaxFlows = max(d.MaxFlows, flowsHere())
			if n%40 != 0 {
				continue // this stops the process
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			d.Memory = max(d.Memory, m.HeapInuse+m.StackInuse)
		}
	}
}

// flowsHere counts the flows of this process's namespace.
func flowsHere() int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return n
}

func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lab is a node that asks, and the endpoint that it asks.
type lab struct {
	node, pod *netns.Namespace
	in        *json.Encoder
	out       *json.Decoder
	excused   atomic.Int64 // answers of datagrams that came when the asker no longer looks for their flows
}

var podAddresses = map[state.Family]netip.Addr{state.IPv4: netip.MustParseAddr("10.7.0.2"), state.IPv6: netip.MustParseAddr("fd07::2")}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{node: netns.New(t), pod: netns.New(t)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errors.Join(l.node.Quiet(), l.pod.Quiet(), netns.Connect(l.node, "pod", l.pod, "node")))
	for _, a := range []string{"10.7.0.1/24", "fd07::1/64"} {
		p := netip.MustParsePrefix(a)
		pod := p.Addr().Next()
		must(errors.Join(l.node.AddAddress("pod", p), l.pod.AddAddress("node", netip.PrefixFrom(pod, p.Bits())),
			l.pod.AddAddress("node", netip.PrefixFrom(pod.Next(), p.Bits()))))
	}
	l.node.Must(t, `table inet t {
chain out { type filter hook output priority 0; ct state new counter; }
chain in { type filter hook input priority 0; ct state new counter; }
}`, "nft", "-f", "-")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), askerProcess+"=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	must(err)
	out, err := child.StdoutPipe()
	must(err)
	must(l.node.Start(child))
	t.Cleanup(func() {
		_ = in.Close()
		_ = child.Wait() // it has done its work
	})
	l.in, l.out = json.NewEncoder(in), json.NewDecoder(out)
	return l
}

func (l *lab) do(t testing.TB, j job) (d done) {
	t.Helper()
	if err := errors.Join(l.in.Encode(j), l.out.Decode(&d)); err != nil {
		t.Fatal(err)
	}
	if d.Error != "" {
		t.Fatal(d.Error)
	}
	return d
}

// at serves in the pod.
func (l *lab) at(t testing.TB, f state.Family, serve func(net.Listener)) netip.AddrPort {
	t.Helper()
	var at netip.AddrPort
	l.pod.MustDo(t, func() error {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(podAddresses[f], 0).String())
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = listener.Close() })
		at = listener.Addr().(*net.TCPAddr).AddrPort()
		go serve(listener)
		return nil
	})
	return at
}

// each serves each connection until the test ends.
func each(serve func(net.Conn)) func(net.Listener) {
	return func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}
}

// says reads something, and answers it.
func says(text string) func(net.Listener) {
	return each(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, text) // the question shows what it got
	})
}

// floods writes until the client goes away.
func floods(text string) func(net.Listener) {
	return each(func(c net.Conn) {
		more := strings.Repeat("x", 64<<10)
		for _, err := io.WriteString(c, text); err == nil; {
			_, err = io.WriteString(c, more)
		}
	})
}

// drips writes a byte from time to time.
func drips(c net.Conn) {
	for _, err := io.WriteString(c, "HTTP/1.1 "); err == nil; time.Sleep(10 * time.Millisecond) {
		_, err = io.WriteString(c, "2")
	}
}

func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func serveHTTP(status int) func(net.Listener) {
	return func(l net.Listener) { _ = http.Serve(l, answering(status)) } // until it is closed
}

func answering(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://192.0.2.1/")
		w.WriteHeader(status)
		fmt.Fprintln(w, "ok")
	})
}

func serveTLS(l net.Listener) {
	s := httptest.NewUnstartedServer(answering(200))
	s.StartTLS()
	certs := s.TLS.Certificates
	s.Close()
	_ = http.Serve(tls.NewListener(l, &tls.Config{Certificates: certs}), answering(200)) // until it is closed
}

// Ports of the pod that its rules drop or reject. They drop everything to the pod's next address.
const droppedPort, rejectedPort, closedPort = 7001, 7002, 7003

func (l *lab) podRules(t testing.TB) {
	t.Helper()
	l.pod.Must(t, fmt.Sprintf(`table inet t { chain in { type filter hook input priority 0;
meta l4proto { tcp, udp } th dport %d drop
meta l4proto { tcp, udp } th dport %d reject with icmpx port-unreachable
ip daddr %s drop
ip6 daddr %s meta l4proto tcp drop
}
}`, droppedPort, rejectedPort, podAddresses[state.IPv4].Next(), podAddresses[state.IPv6].Next()), "nft", "-f", "-")
	if err := l.pod.Sysctl("net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0",
		"net.ipv6.icmp.ratemask=255"); err != nil { // 255: a message that does not exist
		t.Fatal(err)
	}
}

type end struct {
	name, network, check string
	at                   netip.AddrPort
	cancel               time.Duration
	want                 string
}

func (l *lab) ends(t testing.TB, f state.Family) []end {
	pod := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(podAddresses[f], port) }
	accepts, dead := l.at(t, f, each(silent)), netip.AddrPortFrom(podAddresses[f].Next(), 80)
	noAnswer, refused := "no answer: no answer within 100ms", "refused: connection refused"
	return []end{
		{"tcp, good", "tcp", "tcp", accepts, 0, "good: "},
		{"tcp, the server floods", "tcp", "tcp", l.at(t, f, floods("")), 0, "good: "},
		{"tcp, refused", "tcp", "tcp", pod(closedPort), 0, refused},
		{"tcp, refused by ICMP", "tcp", "tcp timeout=500ms", pod(rejectedPort), 0, refused},
		{"tcp, silent", "tcp", "tcp timeout=100ms", pod(droppedPort), 0, noAnswer},
		{"tcp, canceled", "tcp", "tcp", pod(droppedPort), 20 * time.Millisecond, "other: nobody waits for the answer"},
		{"http, good", "tcp", "http", l.at(t, f, serveHTTP(200)), 0, "good: "},
		{"http, error", "tcp", "http", l.at(t, f, serveHTTP(500)), 0, "wrong answer: HTTP status 500"},
		{"http, redirect", "tcp", "http", l.at(t, f, serveHTTP(302)), 0, "good: "},
		{"http, silent", "tcp", "http timeout=100ms", accepts, 0, noAnswer},
		{"http, canceled", "tcp", "http", accepts, 20 * time.Millisecond, "other: nobody waits for the answer"},
		{"http, closed", "tcp", "http", l.at(t, f, each(func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) })), 0,
			"closed: it closed the connection without an answer"},
		{"http, no end", "tcp", "http", l.at(t, f, floods("HTTP/1.1 200 OK\r\n")), 0, "good: "},
		{"http, no end of line", "tcp", "http", l.at(t, f, floods("HTTP/1.1 ")), 0, "wrong answer: the answer is not HTTP"},
		{"http, drips", "tcp", "http timeout=100ms", l.at(t, f, each(drips)), 0, noAnswer},
		{"https, good", "tcp", "https", l.at(t, f, serveTLS), 0, "good: "},
		{"https, not TLS", "tcp", "https", l.at(t, f, says("HTTP/1.1 200 OK\r\n")), 0, "wrong answer: the TLS handshake failed"},
		{"https, silent", "tcp", "https timeout=100ms", accepts, 0, noAnswer},
		{"https, no end", "tcp", "https", l.at(t, f, floods("\x16\x03\x03\x40\x00\x02\x00\xff\xff")), 0,
			"wrong answer: the TLS handshake failed"},
		{"dns, good", "udp", "dns", l.datagrams(t, f, answerDNS), 0, "good: "},
		{"dns, error", "udp", "dns name=none.example", l.datagrams(t, f, answerDNS), 0, "wrong answer: DNS answer NameError"},
		{"dns, another answer", "udp", "dns timeout=100ms", l.datagrams(t, f, otherID), 0, noAnswer},
		{"dns, late", "udp", "dns timeout=100ms", l.datagrams(t, f, lateDNS), 0, noAnswer},
		{"dns, not DNS", "udp", "dns", l.datagrams(t, f, func([]byte) []byte { return []byte("what") }), 0,
			"wrong answer: the answer is not DNS"},
		{"dns, refused", "udp", "dns", pod(closedPort), 0, refused},
		{"dns, silent", "udp", "dns timeout=100ms", pod(droppedPort), 0, noAnswer},
		{"dns over TCP, not DNS", "tcp", "dns", l.at(t, f, says("\x00\x04what")), 0, "wrong answer: the answer is not DNS"},
		{"suspicion, good", "tcp", "off", accepts, 0, "good: "},
		{"suspicion, refused", "tcp", "off", pod(closedPort), 0, refused},
		{"suspicion, silent", "tcp", "off", dead, 0, "no answer: no answer within 650ms"},
		{"suspicion, canceled", "tcp", "off", dead, 120 * time.Millisecond, "other: nobody waits for the answer"},
		{"suspicion, the host answers", "tcp", "off", pod(droppedPort), 0, "host answers: no answer, but its host answers"},
	}
}

// TestQuestionsLeaveNothing asks each question that can end in its own way many times. While it is asked, the node's table
// has no more than 1,000 flows; afterwards it has none, and the process has no more files open than before.
//
// VERDICT_TEST_QUESTIONS says how many times.
func TestQuestionsLeaveNothing(t *testing.T) {
	count, atOnce := 100, 100
	if text := os.Getenv("VERDICT_TEST_QUESTIONS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []state.Family{state.IPv4, state.IPv6} {
		l := newLab(t)
		l.podRules(t)
		for _, e := range l.ends(t, f) {
			t.Run(f.Version()+" "+e.name, func(t *testing.T) {
				j := job{Question: questionOf(t, e.network, e.at.String(), e.check), Count: count, AtOnce: atOnce, Cancel: e.cancel}
				before := l.excused.Load()
				d := l.do(t, j)
				t.Logf("%d flows at most, %d left; %d more files; %d MiB; %v, %v of a core for each", d.MaxFlows, d.Flows, d.Files,
					d.Memory>>20, d.Took.Round(time.Millisecond), (d.CPU / time.Duration(count)).Round(time.Microsecond))
				late := 0
				if e.name == "dns, late" { // a process that was as late as the answer takes it
					late = d.Answers["good: "]
				}
				if d.Answers[e.want]+late+int(l.excused.Load()-before) < count {
					t.Errorf("%v; want %q", d.Answers, e.want)
				}
				if excused := int(l.excused.Load()); d.MaxFlows-excused > 1000 || d.Flows > excused || d.Files > 0 || d.Memory > 64<<20 {
					t.Error("too much")
				}
			})
		}
	}
}

// BenchmarkAsk measures what Cost says: the time of a core for each question, of the process that asks and of the kernel on
// its behalf. The packets to the endpoint and back are counted, too: the kernel handles them for the sender.
func BenchmarkAsk(b *testing.B) {
	l := newLab(b)
	l.podRules(b)
	for _, e := range l.ends(b, state.IPv4) {
		b.Run(e.name, func(b *testing.B) {
			d := l.do(b, job{Question: questionOf(b, e.network, e.at.String(), e.check), Count: 10_000, AtOnce: 100, Cancel: e.cancel})
			b.ReportMetric(float64(d.CPU.Microseconds())/10_000, "core-µs/question")
			b.ReportMetric(float64(d.MaxFlows), "flows")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestOnlyThis: where a tenant could answer for the host of another's endpoint, the host is not asked.
func TestOnlyThis(t *testing.T) {
	l := newLab(t)
	l.podRules(t)
	q := questionOf(t, "tcp", netip.AddrPortFrom(podAddresses[state.IPv4], droppedPort).String(), "off")
	q.OnlyThis = true
	if d := l.do(t, job{Question: q, Count: 1, AtOnce: 1}); d.Answers["no answer: no answer within 650ms"] != 1 {
		t.Errorf("%v", d.Answers)
	}
}
