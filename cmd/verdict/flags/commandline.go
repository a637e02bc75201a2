package flags

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/config"
)

// CommandLine is the flags of "verdict run" and what they set. A flag has the value of the command line, or else that
// of the configuration file, or else the default of the mode of kube-proxy, or else Verdict's default.
type CommandLine struct {
	Settings config.Settings
	File     string // the configuration file; empty: none
	WriteTo  string // the file for Write; empty: nobody asked for it
	Strict   bool   // a field of the file that no kube-proxy had is an error
	// TakeOver and CleanupOnExit are for the daemon. Commands that take its flags accept them.
	TakeOver, CleanupOnExit bool

	flags   *pflag.FlagSet
	ignored map[string]string // why a flag has no effect, by its name

	given   map[string]string // the flags of the command line
	config  *v1alpha1.KubeProxyConfiguration
	strange []kubeproxyconfig.Field // of the file, which kube-proxy does not have
	fields  map[string]string       // flag -> the field of the file that has set it
}

// New binds the flags of "verdict run".
func New(fs *pflag.FlagSet) *CommandLine {
	c := &CommandLine{flags: fs, Settings: config.Default(), given: map[string]string{}, fields: map[string]string{}}
	Bind(fs, &c.Settings)
	fs.StringVar(&c.File, "config", "",
		"`FILE` with a KubeProxyConfiguration; flags win over it. A change of the file takes effect, if necessary by a restart")
	fs.StringVar(&c.WriteTo, "write-config-to", "", "write the configuration that is in force to `FILE`, and exit")
	fs.BoolVar(&c.Strict, "strict-config", false,
		"refuse a --config with fields that no version of kube-proxy had, instead of ignoring them with a warning")
	fs.BoolVar(&c.TakeOver, "take-over", false, "remove what kube-proxy left on this node, when the rules of Verdict are in the kernel")
	fs.BoolVar(&c.CleanupOnExit, "cleanup-on-exit", false, "remove what Verdict has created in the kernel when it stops on request")
	for _, a := range aliases {
		fs.String(a.name, "", "sets --"+a.flag)
		fs.Lookup(a.name).Hidden = true
	}
	c.ignored = bindIgnored(fs)
	return c
}

// UsageError marks an error in flags or arguments.
type UsageError struct{ error }

// Wrong marks an error as one in flags or arguments.
func Wrong(err error) error { return UsageError{err} }

// ExitError makes the program exit with a code. Text is empty if the error has been printed already.
type ExitError struct {
	Code int
	Text string
}

func (e ExitError) Error() string { return e.Text }

// None accepts no arguments.
func None(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Wrong(fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args))
	}
	return nil
}

// Prepare validates the settings that the flags set, and completes them.
func Prepare(s *config.Settings) error {
	if err := s.Validate(); err != nil {
		return UsageError{err}
	}
	return s.Complete()
}

// Resolve completes the settings when the command line has been parsed, and validates them.
func (c *CommandLine) Resolve() error {
	c.flags.Visit(func(f *pflag.Flag) { c.given[f.Name] = valueOf(f) })
	if err := c.readFile(); err != nil {
		return err
	}
	if err := c.applyAliases(); err != nil {
		return UsageError{err}
	}
	if err := c.applyFile(); err != nil {
		return UsageError{err}
	}
	c.applyMode()
	return c.explain(Prepare(&c.Settings))
}

func (c *CommandLine) readFile() (err error) {
	if c.config = new(v1alpha1.KubeProxyConfiguration); c.File == "" {
		return nil
	}
	if c.config, c.strange, err = kubeproxyconfig.Read(c.File); err != nil {
		return UsageError{err}
	}
	for _, f := range c.strange {
		if c.Strict && f.Why == "" {
			return UsageError{fmt.Errorf("--strict-config: %s: no version of kube-proxy has the field %s", c.File, f.Path)}
		}
	}
	return nil
}

// mode is the mode of kube-proxy. A file without a mode means iptables, as in kube-proxy.
func (c *CommandLine) mode() config.ProxyMode {
	mode := cmp.Or(c.Settings.Upstream.Mode, config.ProxyMode(c.config.Mode))
	if mode == "" && c.File != "" {
		return config.ProxyModeIPTables
	}
	return mode
}

const featureGates = "feature-gates" // the flag

// applyFile sets the flags that the command line has not set. Objects come from a folder or from an API server: a folder
// on the command line wins. Feature gates come from both, and one that either closes is closed.
func (c *CommandLine) applyFile() error {
	fields := *c.config
	fields.Mode = v1alpha1.ProxyMode(c.mode())
	gates := maps.Clone(c.Settings.Upstream.FeatureGates)
	var errs []error
	for _, v := range kubeproxyconfig.Values(&fields) {
		if c.flags.Changed(v.Flag) && v.Flag != featureGates || v.Flag == "kubeconfig" && c.Settings.Manifests != "" {
			continue
		}
		if err := c.flags.Set(v.Flag, v.Text); err != nil {
			errs = append(errs, fmt.Errorf("%s: field %s: %w", c.File, v.Path, err))
		}
		c.fields[v.Flag] = v.Path
	}
	for gate, open := range gates {
		c.Settings.Upstream.FeatureGates[gate] = open && c.Settings.Upstream.FeatureGates[gate]
	}
	return errors.Join(errs...)
}

// applyMode chooses the defaults of the mode for flags that nobody has set.
func (c *CommandLine) applyMode() {
	s := &c.Settings
	if s.Upstream.Mode = c.mode(); s.Upstream.Mode == "" {
		return
	}
	if s.Upstream.Mode == config.ProxyModeIPVS && s.DefaultScheduler == "" {
		s.DefaultScheduler = s.IPVS.Scheduler
	}
	if s.Upstream.Mode == config.ProxyModeIPTables && !c.flags.Changed("drop-invalid") {
		liberal, _ := nodesetup.ReadSysctl("net.netfilter.nf_conntrack_tcp_be_liberal") // fails without nf_conntrack: 0 by default
		s.DropInvalid = !s.Fleet && !s.Node.Conntrack.TCPBeLiberal && liberal != "1"
	}
	list := s.NodePortAddresses
	if !c.flags.Changed("nodeport-addresses") {
		list = nil
	}
	s.NodePortAddresses = s.Upstream.ModeNodePortAddresses(list)
	if bind := c.Settings.BindAddress; strings.Contains(bind, ":") { // as in kube-proxy
		c.setDefault("healthz-bind-address", &s.HealthzBindAddress, "[::]:"+config.HealthzPort)
		c.setDefault("metrics-bind-address", &s.MetricsBindAddress, "[::1]:"+config.MetricsPort)
	}
}

func (c *CommandLine) setDefault(flag string, setting *string, value string) {
	if !c.flags.Changed(flag) {
		*setting = value
	}
}

// explain adds to errors about flags which field of the file has set them.
func (c *CommandLine) explain(err error) error {
	if _, usage := errors.AsType[UsageError](err); !usage {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "--"), ":")
		name, _, _ = strings.Cut(name, "=")
		if field := c.fields[name]; field != "" {
			lines[i] = fmt.Sprintf("%s: field %s: %s", c.File, field, line)
		}
	}
	return UsageError{errors.New(strings.Join(lines, "\n"))}
}

// Warn logs what has no meaning: one line for each flag, and one for the file.
func (c *CommandLine) Warn(log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(c.given)) {
		if why := c.ignored[name]; why != "" {
			log.Warn("this flag of kube-proxy has no effect", "flag", "--"+name, "value", c.given[name], "reason", why)
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(c.Settings.Upstream.FeatureGates)) {
		if gate != config.ExternalIPsGate {
			log.Warn("this feature gate has no effect", "gate", gate, "reason", "Verdict has no gate but "+config.ExternalIPsGate)
		}
	}
	if text := c.unused(); text != "" {
		log.Warn(unusedFields, "file", c.File, "fields", text)
	}
}

const unusedFields = "fields of the configuration file have no effect"

// unused names the fields of the file that have no effect.
func (c *CommandLine) unused() string {
	unused := kubeproxyconfig.Unused(c.config)
	for _, f := range c.strange {
		unused = append(unused, fmt.Sprintf("%s (%s)", f.Path, cmp.Or(f.Why, "no version of kube-proxy has it")))
	}
	slices.Sort(unused)
	return strings.Join(unused, "; ")
}

// Write writes the configuration that is in force. What the format cannot say is in comments.
func (c *CommandLine) Write() error {
	data, err := kubeproxyconfig.Write(c.config, func(flag string) string { return valueOf(c.flags.Lookup(flag)) })
	if err != nil {
		return err
	}
	rest, err := c.unwritable(data)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.WriteTo, append(data, rest...), 0o644); err != nil { //nolint:gosec // it holds no secret
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// unwritable lists the flags that somebody who reads the written file would have to set beside it, as comments.
func (c *CommandLine) unwritable(data []byte) ([]byte, error) {
	read := New(pflag.NewFlagSet("written", pflag.ContinueOnError))
	var err error
	if read.config, _, err = kubeproxyconfig.Parse(data); err != nil {
		return nil, fmt.Errorf("read the configuration that was written: %w", err)
	}
	read.File = c.WriteTo
	if err := read.applyFile(); err != nil {
		return nil, fmt.Errorf("read the configuration that was written: %w", err)
	}
	read.applyMode()
	var out []byte
	c.flags.VisitAll(func(f *pflag.Flag) {
		other := read.flags.Lookup(f.Name)
		if other == nil || f.Hidden || f.Name == "config" || f.Name == "strict-config" || f.Name == "write-config-to" || valueOf(f) == valueOf(other) {
			return
		}
		if len(out) == 0 {
			out = append(out, "# Further flags of verdict run:\n"...)
		}
		out = fmt.Appendf(out, "#   --%s=%s\n", f.Name, valueOf(f))
	})
	return out, nil
}

// again reads the file again, for the same command line.
func (c *CommandLine) again() (*CommandLine, error) {
	next := New(pflag.NewFlagSet("again", pflag.ContinueOnError))
	for name, value := range c.given {
		if next.flags.Lookup(name) == nil {
			continue // a flag that is no setting, such as --take-over
		}
		if err := next.flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("apply --%s again: %w", name, err)
		}
	}
	return next, next.Resolve()
}

// valueOf returns the value of a flag as the command line takes it.
func valueOf(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}
