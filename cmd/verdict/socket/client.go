package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ErrNotRunning means that no daemon answers in this network namespace.
var ErrNotRunning = errors.New("no daemon of Verdict answers in this network namespace: " +
	"it does not run, or it is of an earlier version")

// errStranger means that a process of another user has the name of the socket.
var errStranger = errors.New("the socket " + name +
	" belongs to a process that is neither root's nor this user's, and may not write the rules; it is not asked")

// Client asks the daemon of the network namespace of the calling thread.
type Client struct{}

// timeout is how long an answer may take.
const timeout = 5 * time.Second

// NewClient returns a client.
func NewClient() *Client { return &Client{} }

// dial connects. It runs on the thread of the caller: another one may be in another network namespace.
func (c *Client) dial() (net.Conn, error) {
	conn, err := net.DialTimeout("unix", name, timeout)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNotRunning
	}
	if err == nil && !trusted(conn) && !administers(conn) {
		return nil, errors.Join(errStranger, conn.Close())
	}
	return conn, err
}

// administers reports whether the process at the other end has the capability NET_ADMIN, as a daemon has that systemd runs as
// a user of its own. Such a process can write the rules anyway. That the user is still the same rules out another process that
// has got the number since.
func administers(c net.Conn) bool {
	peer, err := credentials(c)
	if err != nil {
		return false
	}
	process, err := procfs.NewProc(int(peer.Pid))
	if err != nil {
		return false
	}
	status, err := process.NewStatus()
	return err == nil && status.CapEff&(1<<unix.CAP_NET_ADMIN) != 0 && status.UIDs[0] == uint64(peer.Uid)
}

// ask gets the answer to a question.
func ask[T any](c *Client, path string, query url.Values) (T, error) {
	return send[T](c, http.MethodGet, path, query, timeout)
}

// send sends a question or a request, and returns the answer.
func send[T any](c *Client, method, path string, query url.Values, timeout time.Duration) (answer T, err error) {
	conn, err := c.dial()
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	web := http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true,
	}}
	target := url.URL{Scheme: "http", Host: "verdict", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequest(method, target.String(), nil)
	if err != nil {
		return answer, err
	}
	r, err := web.Do(request)
	if err != nil && os.Geteuid() != 0 && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)) {
		err = fmt.Errorf("it answers root and its own user only: %w", syscall.EPERM)
	}
	if err != nil {
		return answer, fmt.Errorf("ask the daemon: %w", err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1000)) // without the text there is the status
		return answer, fmt.Errorf("ask the daemon: %s: %s", r.Status, strings.TrimSpace(string(text)))
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the answer of the daemon: %w", err)
	}
	return answer, nil
}

// Status asks what the daemon does.
func (c *Client) Status() (Status, error) { return ask[Status](c, pathStatus, nil) }

// Passes asks for the latest passes, the newest first.
func (c *Client) Passes() ([]Pass, error) { return ask[[]Pass](c, pathPasses, nil) }

// Problems asks what cannot be honored of an object (namespace/name); "": of all objects.
func (c *Client) Problems(object string) ([]Problem, error) {
	return ask[[]Problem](c, pathProblems, url.Values{"object": {object}})
}

// Endpoints asks for the endpoints of a Service (namespace/name), and why some are left out.
func (c *Client) Endpoints(service string) ([]Endpoint, error) {
	return ask[[]Endpoint](c, pathEndpoints, url.Values{"service": {service}})
}

// Frontends asks which frontends a Service (namespace/name) or a namespace may have, or which there may be at an address.
func (c *Client) Frontends(of string) (Frontends, error) {
	return ask[Frontends](c, pathFrontends, url.Values{"of": {of}})
}

// Names asks for the first Services (namespace/name) that begin with a text.
func (c *Client) Names(begin string) ([]string, error) {
	return ask[[]string](c, pathNames, url.Values{"begin": {begin}})
}

// ServicesOf asks which Services have an endpoint (ADDRESS or ADDRESS:PORT).
func (c *Client) ServicesOf(endpoint string) (Services, error) {
	return ask[Services](c, pathServices, url.Values{"endpoint": {endpoint}})
}

// PassingPeriod is how old an answer about open connections may be for those who only look.
const PassingPeriod = 15 * time.Second

// Passing asks for the open connections, as of some time ago at most. The daemon looks less often at a large table, and that takes
// seconds.
func (c *Client) Passing(within time.Duration) ([]Passing, error) {
	return send[[]Passing](c, http.MethodGet, pathPassing, url.Values{"within": {within.String()}}, time.Minute)
}

// FastPath asks which connections of a Service (namespace/name) take the fast path; "": of all Services.
func (c *Client) FastPath(service string) (FastPath, error) {
	return ask[FastPath](c, pathFastPath, url.Values{"service": {service}})
}

// request has the daemon do something, and returns what it did not do.
func request(c *Client, path string, query url.Values, timeout time.Duration) error {
	answer, err := send[done](c, http.MethodPost, path, query, timeout)
	if err == nil && answer.Fault != "" {
		err = errors.New(answer.Fault)
	}
	return err
}

// reloadTimeout is longer than a reload takes.
const reloadTimeout = 50 * time.Second

// Reload has the daemon read its files again, and returns what it cannot use.
func (c *Client) Reload() error {
	return request(c, pathReload, nil, reloadTimeout)
}

// Leave tells the daemon that the system stops.
func (c *Client) Leave() error { return request(c, pathLeave, nil, reloadTimeout) }

// End has the daemon reset the connections that die with this node, and returns how many there are.
func (c *Client) End() (int, error) {
	answer, err := send[done](c, http.MethodPost, pathEnd, nil, reloadTimeout)
	if err == nil && answer.Fault != "" {
		err = errors.New(answer.Fault)
	}
	return answer.Ended, err
}

// Drain has the daemon stop serving, and returns when that is done. Without an answer, the daemon has crashed.
func (c *Client) Drain(how Drain) error {
	const forever = 0
	return request(c, pathDrain, url.Values{"settle": {how.Settle.String()}, "timeout": {how.Timeout.String()}}, forever)
}

// Outliers asks which endpoints do not answer, fail their checks, or are backups.
func (c *Client) Outliers() ([]Outlier, error) { return ask[[]Outlier](c, pathOutliers, nil) }
