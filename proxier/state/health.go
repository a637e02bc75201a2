package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Failure is an endpoint of a Service that is not good at this time.
type Failure struct {
	Protocol Protocol
	At       netip.AddrPort
	Since    time.Time
	// Sure means that the endpoint, or its host, has answered, and the answer is bad. Silence may be the fault of the
	// network of this node, or of a network policy, so no more than a share of a pool is ejected because of it.
	Sure bool
	// Accepts means that the endpoint accepts TCP connections, and only what it says is bad: no connection waits for an answer.
	Accepts bool
}

// Compare orders failures by endpoint.
func (f Failure) Compare(o Failure) int {
	return cmp.Or(f.At.Compare(o.At), cmp.Compare(f.Protocol, o.Protocol))
}

// Health has the endpoints of a Service that are not good, sorted by Compare. It is never changed in place.
type Health []Failure

// MergeFailures sorts failures, and joins those of one endpoint.
func MergeFailures(list Health) (out Health) {
	slices.SortFunc(list, Failure.Compare)
	for _, f := range list {
		if last := len(out) - 1; last >= 0 && out[last].Compare(f) == 0 {
			out[last].Sure, out[last].Accepts = out[last].Sure || f.Sure, out[last].Accepts && f.Accepts
			if f.Since.Before(out[last].Since) {
				out[last].Since = f.Since
			}
			continue
		}
		out = append(out, f)
	}
	return out
}

// HealthCheck is what a Service asks about active checks: how this node asks the endpoints whether they serve. It is
// comparable, so that Services with equal values share the answers.
type HealthCheck struct {
	Kind                 CheckKind
	Rise, Fall           uint8
	Port                 uint16 // 0: the port of the endpoint
	MinStatus, MaxStatus uint16 // http and https
	Path                 string // http and https
	// Host is the TLS server name and the header Host of http and https, and the name that dns asks for.
	Host              string
	Interval, Timeout time.Duration
}

// CheckKind is a protocol by which endpoints are asked.
type CheckKind uint8

// The kinds.
const (
	CheckOff CheckKind = iota // nobody asks, whatever the flag says
	CheckTCP
	CheckHTTP
	CheckHTTPS
	CheckDNS
)

func (k CheckKind) String() string { return [...]string{"off", "tcp", "http", "https", "dns"}[k] }

// AllDown is what becomes of connections when no endpoint of a pool is good.
type AllDown uint8

// The values of AllDown.
const (
	KeepAll    AllDown = iota // all endpoints get them, as if they passed
	RefuseAll                 // they are refused
	BackupOnly                // the backup endpoints get them, although they fail as well
)

func (a AllDown) String() string { return [...]string{"keep", "reject", "backup"}[a] }

// The bounds of a check.
const (
	MinCheckInterval = time.Second
	MaxCheckInterval = 10 * time.Minute
	MinCheckTimeout  = 100 * time.Millisecond
	MaxCheckCount    = 100
	maxCheckPath     = 128
	maxCheckHost     = 253
)

// ParseHealthCheck parses a check, such as "http path=/healthz status=200-399 interval=5s timeout=1s rise=2 fall=3".
func ParseHealthCheck(text string) (HealthCheck, error) {
	c := HealthCheck{Interval: 5 * time.Second, Rise: 2, Fall: 3}
	words := strings.Fields(text)
	if len(words) == 0 {
		return HealthCheck{}, fmt.Errorf("it is empty; it must begin with tcp, http, https, dns or off")
	}
	if err := c.kind(words[0]); err != nil {
		return HealthCheck{}, err
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if seen[key] {
			return HealthCheck{}, fmt.Errorf("%s occurs twice", Quote(key))
		}
		seen[key] = true
		if err := c.parameter(key, value); err != nil {
			return HealthCheck{}, err
		}
	}
	if c.Timeout = cmp.Or(c.Timeout, min(time.Second, c.Interval)); c.Timeout > c.Interval {
		return HealthCheck{}, fmt.Errorf("timeout=%s is longer than interval=%s", c.Timeout, c.Interval)
	}
	if c.Kind == CheckOff {
		return HealthCheck{}, nil
	}
	return c, nil
}

func (c *HealthCheck) kind(word string) error {
	for c.Kind = CheckOff; c.Kind <= CheckDNS; c.Kind++ {
		if c.Kind.String() == word {
			if c.web() {
				c.Path, c.MinStatus, c.MaxStatus = "/", 200, 399
			}
			return nil
		}
	}
	return fmt.Errorf("%s is not tcp, http, https, dns or off", Quote(word))
}

func (c *HealthCheck) web() bool { return c.Kind == CheckHTTP || c.Kind == CheckHTTPS }

// parameter sets one parameter. Each kind has its own.
func (c *HealthCheck) parameter(key, value string) (err error) {
	switch {
	case c.Kind == CheckOff:
		return fmt.Errorf("off has no parameters")
	case key == "interval":
		c.Interval, err = timeIn(key, value, MinCheckInterval, MaxCheckInterval)
	case key == "timeout":
		c.Timeout, err = timeIn(key, value, MinCheckTimeout, MaxCheckInterval)
	case key == "rise":
		c.Rise, err = countIn(key, value)
	case key == "fall":
		c.Fall, err = countIn(key, value)
	case key == "port":
		c.Port, err = numberIn(key, value, 1, 65535)
	case key == "path" && c.web():
		c.Path, err = value, validPath(value)
	case key == "status" && c.web():
		err = c.status(value)
	case key == "server-name" && c.web(), key == "name" && c.Kind == CheckDNS:
		c.Host, err = value, validHost(key, value)
	default:
		more := map[CheckKind]string{CheckHTTP: ", path, status, server-name", CheckHTTPS: ", path, status, server-name", CheckDNS: ", name"}
		return fmt.Errorf("%s is not a parameter of %s, which has interval, timeout, rise, fall, port%s", Quote(key), c.Kind, more[c.Kind])
	}
	return err
}

// status parses one status or a range.
func (c *HealthCheck) status(value string) (err error) {
	from, to, isRange := strings.Cut(value, "-")
	if !isRange {
		to = from
	}
	if c.MinStatus, err = numberIn("status", from, 100, 599); err != nil {
		return err
	}
	if c.MaxStatus, err = numberIn("status", to, 100, 599); err != nil {
		return err
	}
	if c.MinStatus > c.MaxStatus {
		return fmt.Errorf("status=%s is an empty range", Quote(value))
	}
	return nil
}

func timeIn(key, value string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s=%s is not a time from %s to %s", key, Quote(value), least, most)
	}
	return d, nil
}

func countIn(key, value string) (uint8, error) {
	n, err := numberIn(key, value, 1, MaxCheckCount)
	return uint8(n), err
}

func numberIn(key, value string, least, most uint64) (uint16, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%s is not a number from %d to %d", key, Quote(value), least, most)
	}
	return uint16(n), nil
}

// validPath refuses what could end the line of a request.
func validPath(path string) error {
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	if !strings.HasPrefix(path, "/") || len(path) > maxCheckPath || strings.ContainsFunc(path, bad) {
		return fmt.Errorf("path=%s is not a path: it begins with /, and has at most %d bytes of ASCII", Quote(path), maxCheckPath)
	}
	return nil
}

// validHost refuses what is no name in DNS.
func validHost(key, host string) error {
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		bad := func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r)
		}
		if label == "" || len(label) > 63 || len(host) > maxCheckHost || strings.ContainsFunc(label, bad) {
			return fmt.Errorf("%s=%s is not a name in DNS", key, Quote(host))
		}
	}
	return nil
}

// ParseAllDown parses what becomes of connections when no endpoint passes the checks.
func ParseAllDown(text string) (AllDown, error) {
	return oneOf[AllDown](text, "keep", "reject", "backup")
}
