package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// statusPeriod is how often the status line of systemd is brought up to date.
	statusPeriod = time.Second
	// notifyPatience is how long a notification waits for room: the kernel keeps few that systemd has not read
	// (net.unix.max_dgram_qlen). A manager that does not read must not hold up a reload, or the end.
	notifyPatience = time.Second
)

// supervised tells systemd what the daemon does (sd_notify(3)): that its first rules are in the kernel, that its loop goes
// on, what it serves, and that it reads its files again. SIGHUP asks for that. Without NOTIFY_SOCKET, it reports nothing.
type supervised struct {
	proxy    *health.Proxy
	daemon   *socket.Daemon
	files    *reloader
	passed   <-chan struct{}
	hangups  <-chan os.Signal
	watchdog time.Duration // 0: systemd does not watch
	ready    atomic.Bool   // systemd knows that this process is ready
	line     string        // the last status line
	refused  atomic.Bool   // the last notification was not delivered
	log      *slog.Logger
}

func supervise(o *observers, d *socket.Daemon, files *reloader, hangups <-chan os.Signal) *supervised {
	s := &supervised{proxy: o.proxy, daemon: d, files: files, passed: o.passed, hangups: hangups, log: o.log}
	var err error
	if s.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		o.log.Warn("cannot serve the watchdog of systemd, which may end this process", "error", err)
	}
	return s
}

// run works until the context ends.
func (s *supervised) run(ctx context.Context) error {
	every := statusPeriod
	if s.watchdog > 0 {
		every = min(every, s.watchdog/4)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	s.report()
	passed := s.passed
	if os.Getenv("NOTIFY_SOCKET") == "" { // each pass would wake this goroutine for nothing
		tick.Stop()
		passed = nil
	}
	for {
		select {
		case <-ctx.Done():
			s.notify(daemon.SdNotifyStopping + "\nSTATUS=stopping")
			return nil
		case <-s.hangups:
			go func() { _ = s.reload(ctx) }() // logged; the watchdog is served during it
		case <-passed:
		case <-tick.C:
		}
		s.report()
	}
}

// report tells what is new, and serves the watchdog.
func (s *supervised) report() {
	text, waits := "", !s.ready.Load()
	becomes := waits && s.proxy.Ready()
	if becomes {
		text = daemon.SdNotifyReady + "\n"
	}
	if !s.proxy.Stuck() {
		if s.watchdog > 0 {
			text += daemon.SdNotifyWatchdog + "\n"
		}
		if waits && !becomes { // the first pass of a slow machine, or an API server that is away
			text += "EXTEND_TIMEOUT_USEC=90000000\n"
		}
	}
	status := s.daemon.Status()
	line := status.Line()
	if line != s.line || becomes {
		text += "STATUS=" + line + "\n"
	}
	if text != "" && s.notify(text) { // otherwise the next report says it again
		s.line = line
		if becomes {
			s.ready.Store(true)
		}
	}
}

// reload reads the files again, and says what became of it.
func (s *supervised) reload(ctx context.Context) error {
	s.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() + "STATUS=reading the files again")
	err := s.files.reload(ctx)
	status := s.daemon.Status()
	result := "STATUS=" + status.Line()
	if err == nil {
		s.log.Info("the files were read again, and the kernel has what they ask for")
	} else {
		result += "; of the files, not all can be used: " + logging.OneLine(err)
		s.log.Error("the files were read again, and not all can be used", "error", logging.OneLine(err))
	}
	if s.proxy.Ready() {
		result += "\n" + daemon.SdNotifyReady
	}
	if !s.notify(result) {
		s.ready.Store(false) // the next report says READY again, which ends the reload for systemd
	}
	return err
}

// notify sends a notification, and reports whether it is delivered or nobody wants it. It logs the first one of several that
// are not delivered.
func (s *supervised) notify(text string) bool {
	err := send(os.Getenv("NOTIFY_SOCKET"), text)
	if before := s.refused.Swap(err != nil); err != nil && !before {
		s.log.Warn("cannot notify systemd, which may take this process for dead; trying again", "error", err)
	}
	return err == nil
}

// send writes to the socket of a manager. SdNotify of go-systemd would wait for ever.
func send(name, text string) error {
	if name == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyPatience)); err != nil {
		return err
	}
	_, err = c.Write([]byte(text))
	return err
}

// reloader reads the configuration file and the manifests at once, because somebody asks. Both are followed anyway.
type reloader struct {
	config, manifests chan directory.Request // nil: there is no such file or folder
	folder            string                 // of the manifests
	flags             []byte                 // the content of flagsFile at the start
	store             *state.Store
	journal           *socket.Journal
	turn              chan struct{} // one at a time
}

// flagsFile has the flags of the unit, which sets the variable VERDICT_ARGS from it.
const flagsFile = "/etc/default/verdict"

func newReloader(configFile string, s *config.Settings, store *state.Store, journal *socket.Journal) *reloader {
	r := &reloader{folder: s.Manifests, store: store, journal: journal, turn: make(chan struct{}, 1)}
	r.flags, _ = os.ReadFile(flagsFile) // without the package there is none
	if configFile != "" {
		r.config = make(chan directory.Request)
	}
	if s.Manifests != "" {
		r.manifests = make(chan directory.Request)
	}
	return r
}

// longestReload is how long a reload may take with what it waits for.
const longestReload = 30 * time.Second

// reload returns when the kernel has what the files ask for. The error says what cannot be used; the rest is in force.
func (r *reloader) reload(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, longestReload)
	defer stop()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return fmt.Errorf("read the files again: another reload has not ended: %w", ctx.Err())
	}
	var errs []error
	for _, files := range []chan directory.Request{r.config, r.manifests} {
		if files != nil {
			errs = append(errs, directory.Read(ctx, files))
		}
	}
	errs = append(errs, awaitKernel(ctx, r.store, anything))
	if r.manifests != nil { // the objects of a cluster have other owners
		errs = append(errs, r.unhonored()...)
	}
	now, _ := os.ReadFile(flagsFile)
	if _, isUnit := os.LookupEnv("VERDICT_ARGS"); isUnit && !bytes.Equal(now, r.flags) {
		errs = append(errs, errors.New(flagsFile+" has changed since the start of the daemon: systemctl restart verdict"))
	}
	return errors.Join(errs...)
}

// unhonored lists the Problems of the manifests, without endpoints that serve nobody at the moment.
func (r *reloader) unhonored() (errs []error) {
	list := slices.DeleteFunc(r.journal.Found(""), func(p state.Problem) bool { return p.Field == state.FieldEndpoints || p.Kind == convert.KindFile })
	own := state.NewStore() // it has those of files now, for which no pass is needed
	files := manifests.New(manifests.Options{Store: own, Log: slog.New(slog.DiscardHandler)})
	if files.Load(r.folder) != nil {
		return nil // whoever follows the folder has returned this error
	}
	for _, o := range own.ChangedProblems() {
		list = append(list, own.ProblemsOf(o)...)
	}
	slices.SortFunc(list, state.Problem.Compare)
	const most = 20
	for _, at := range files.Places(slices.Compact(list[:min(len(list), most)])) {
		errs = append(errs, errors.New(at.String()))
	}
	return errs
}

func anything(c *state.Changes) bool { return c.Environment || len(c.Services) > 0 }

// awaitKernel waits until no change waits for the kernel, of those that count.
func awaitKernel(ctx context.Context, store *state.Store, counts func(*state.Changes) bool) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if c, synced := store.Pending(); synced && !counts(&c) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return errors.New("the kernel does not have all changes yet; they are tried again")
		}
	}
}
