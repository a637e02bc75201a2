//go:build e2e

package flood

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// roleVariable is an environment variable that says what this program plays instead of running tests. Other processes play it,
// so that this one, which measures, has nothing to do with it.
const roleVariable = "VERDICT_FLOOD_ROLE"

// play plays a role, until something fails.
func play(role string) error {
	if url, ok := strings.CutPrefix(role, "read "); ok {
		return readPage(url)
	}
	return control()
}

// process starts a process with a role in a namespace, and returns its output.
func process(t testing.TB, in *netns.Namespace, role string) (out io.Reader, stop func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), roleVariable+"="+role), os.Stderr
	out, err := cmd.StdoutPipe()
	lab.Must(t, err, in.Start(cmd))
	return out, sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}

// control prints how much longer a sleep of a millisecond takes, and how long the kernel takes for a transaction of one
// element in a namespace where nobody else has tables: what the machine itself costs.
func control() error {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return err
	}
	set := &nftables.Set{
		Table: conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "control"}), Name: "set", KeyType: nftables.TypeIPAddr,
	}
	if err := errors.Join(conn.AddSet(set, nil), conn.Flush()); err != nil {
		return err
	}
	go func() {
		for {
			began := time.Now()
			time.Sleep(time.Millisecond)
			fmt.Println("clock", int64(time.Since(began)-time.Millisecond))
		}
	}()
	element := []nftables.SetElement{{Key: []byte{10, 0, 0, 1}}}
	for n := 0; ; n++ {
		write := conn.SetAddElements
		if n%2 == 1 {
			write = conn.SetDeleteElements
		}
		began := time.Now()
		if err := errors.Join(write(set, element), conn.Flush()); err != nil {
			return err
		}
		fmt.Println("commit", int64(time.Since(began)))
		time.Sleep(idle)
	}
}

// machine is what the control process has measured.
type machine struct {
	mu      sync.Mutex
	samples map[string]measure.Sample
}

// watchMachine starts the control process.
func watchMachine(t testing.TB) *machine {
	t.Helper()
	out, stop := process(t, netns.New(t), "control")
	m := &machine{samples: map[string]measure.Sample{}}
	var running sync.WaitGroup
	running.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var what string
			var took time.Duration
			if n, _ := fmt.Sscan(lines.Text(), &what, (*int64)(&took)); n == 2 {
				m.mu.Lock()
				m.samples[what] = append(m.samples[what], took)
				m.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return m
}

// take returns what was measured since the last call.
func (m *machine) take() (commits, clock measure.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	commits, clock = m.samples["commit"], m.samples["clock"]
	clear(m.samples)
	return commits, clock
}

// readers is how many threads readPage has.
const readers = 40

// readPage reads a page again and again.
func readPage(url string) error {
	client, failed := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: readers}}, make(chan error)
	for range readers {
		go func() {
			for {
				page, err := client.Get(url)
				if err == nil {
					_, err = io.Copy(io.Discard, page.Body)
					err = errors.Join(err, page.Body.Close())
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}
