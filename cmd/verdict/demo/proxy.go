package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// The proxy listens on these addresses. No other program listens in its network namespace.
const (
	healthzAddress = "127.0.0.1:10256"
	metricsAddress = "127.0.0.1:10249"
)

// entry holds the fields of a log line of the proxy that the demo reads.
type entry struct {
	Level    string        `json:"level"`
	Msg      string        `json:"msg"`
	Error    string        `json:"error"`
	Reason   string        `json:"reason"`
	Added    int           `json:"added"`
	Deleted  int           `json:"deleted"`
	Bytes    int           `json:"bytes"`
	Kernel   time.Duration `json:"kernel"`   // of the system call that sends the transaction
	Duration time.Duration `json:"duration"` // of the whole pass
}

// changed reports whether the line says that a transaction with elements is in the kernel.
func (e *entry) changed() bool {
	return e.Added+e.Deleted > 0 && e.Level != "ERROR" && e.Msg != "changes applied" // the sum of several passes
}

// proxy is a running "verdict run".
type proxy struct {
	process *exec.Cmd
	log     chan entry // closed at the end of the log
	ended   chan error
}

// sourceArguments returns the arguments that "verdict run" and "verdict render" have in common.
func sourceArguments(dir string, families []family) []string {
	return []string{"--manifests", dir, "--hostname-override", nodeName, "--cluster-cidr", ranges(families)}
}

func startProxy(arguments []string) (*proxy, error) {
	arguments = append([]string{"run"}, arguments...)
	arguments = append(arguments, "--healthz-bind-address", healthzAddress, "--metrics-bind-address", metricsAddress,
		"--state-dir", "", // nothing outlives the demo
		"--table-owner", "off", // whoever watches the demo may try what happens when the tables change
		"--log-format", "json", "-v", "4") // from 4 on every pass is logged
	p := &proxy{process: exec.Command(ownProgram, arguments...), log: make(chan entry, 256), ended: make(chan error, 1)}
	// A terminal sends Ctrl-C to the whole foreground process group. The proxy is not part of it, and the demo stops
	// it.
	p.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := p.process.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe for the log of verdict run: %w", err)
	}
	if err := p.process.Start(); err != nil {
		return nil, fmt.Errorf("start verdict run: %w", err)
	}
	go p.follow(stderr)
	return p, nil
}

// follow reads the log of the proxy and waits for its end.
func (p *proxy) follow(stderr io.Reader) {
	p.read(stderr)
	p.ended <- p.process.Wait()
}

// read puts the lines of the log into the channel. It drops lines while the channel is full.
func (p *proxy) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = entry{Level: "ERROR", Msg: lines.Text()} // the error that main prints at the end is not JSON
		}
		select {
		case p.log <- e:
		default:
		}
	}
	close(p.log)
}

// await reads the log up to the line that it waits for. It returns the first error of the proxy. If the line does not
// come, its own error contains the last warning of the proxy.
func (p *proxy) await(ctx context.Context, what string, wanted func(*entry) bool) (*entry, error) {
	warned := ""
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until %s: %w%s", what, ctx.Err(), warned)
		case e, open := <-p.log:
			switch {
			case !open:
				return nil, p.endedBefore(ctx, what+warned)
			case wanted(&e):
				return &e, nil
			case e.Level == "ERROR":
				return nil, fmt.Errorf("verdict run: %s", e.text())
			case e.Level == "WARN":
				warned = "; it warned: " + e.text()
			}
		}
	}
}

// endedBefore is the error of a proxy that has ended. A Ctrl-C between fork and exec meets it in the group of the demo, which
// gets the signal as well, perhaps a moment later.
func (p *proxy) endedBefore(ctx context.Context, what string) error {
	err := <-p.ended
	p.ended <- err // stop reads it, too
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(endWithin):
		}
	}
	return fmt.Errorf("verdict run ended before %s", what)
}

func (e *entry) text() string { return strings.TrimRight(e.Msg+": "+e.Error+e.Reason, ": ") }

// healthPoll is the time between two requests to /healthz, until it answers 200.
const healthPoll = 5 * time.Millisecond

// healthy waits until the rules are in the kernel.
func (p *proxy) healthy(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthzAddress+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close() // an error does not matter: the demo does not read the body
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until /healthz of verdict run answers 200: %w", err)
		case <-time.After(healthPoll):
		}
	}
}

// stop asks the proxy to end and waits for it.
func (p *proxy) stop() error {
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop verdict run: %w", err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("verdict run ended badly: %w", err)
		}
		return nil
	case <-time.After(endWithin / 2):
		return fmt.Errorf("verdict run did not stop within %v; it is killed", endWithin/2)
	}
}

// render returns the output of "verdict render".
func render(ctx context.Context, arguments []string) (string, error) {
	out, err := exec.CommandContext(ctx, ownProgram, append([]string{"render"}, arguments...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("verdict render: %w: %s", err, exit.Stderr)
	}
	return string(out), err
}
