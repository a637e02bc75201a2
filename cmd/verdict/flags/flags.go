package flags

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Log is the group of flags about the log, which other commands have as well.
const Log = "log"

// Bind binds the flags of one group; without a group, all of them. The tags of config.Settings say which there are.
func Bind(fs *pflag.FlagSet, s *config.Settings, group ...string) {
	bind(fs, reflect.ValueOf(s).Elem(), group)
}

func bind(fs *pflag.FlagSet, settings reflect.Value, group []string) {
	for field, value := range settings.Fields() {
		switch {
		case value.Kind() == reflect.Struct:
			bind(fs, value, group)
		case len(group) == 0 || slices.Contains(group, field.Tag.Get("in")):
			bindSetting(fs, value, field.Tag)
		}
	}
}

// live is the tag of settings, and the annotation of flags, whose change takes effect without a restart. The function that Follow
// gets makes it so.
const live = "live"

func isLive(f *pflag.Flag) bool { return f.Annotations[live] != nil }

// bindSetting binds the flag of a setting.
func bindSetting(fs *pflag.FlagSet, setting reflect.Value, tag reflect.StructTag) {
	name, usage := tag.Get("flag"), strings.NewReplacer("<", "`", ">", "`").Replace(tag.Get("usage"))
	if setting.Kind() == reflect.String { // such as config.Backend
		setting = setting.Addr().Convert(reflect.TypeFor[*string]()).Elem()
	}
	switch p := setting.Addr().Interface().(type) {
	case *string:
		fs.StringVar(p, name, *p, usage)
	case *[]string:
		fs.StringSliceVar(p, name, *p, usage)
	case *bool:
		fs.BoolVar(p, name, *p, usage)
	case *int:
		fs.IntVarP(p, name, tag.Get("short"), *p, usage)
	case *float32:
		fs.Float32Var(p, name, *p, usage)
	case *time.Duration:
		fs.DurationVar(p, name, *p, usage)
	case *map[string]bool:
		fs.Var(cliflag.NewMapStringBool(p), name, usage)
	default:
		panic("no kind of flag for the setting " + name) // TestEverySettingHasAFlag would not pass
	}
	if tag.Get(live) != "" {
		_ = fs.SetAnnotation(name, live, []string{"yes"}) // the flag exists
	}
}

// Output is the flag -o: the form in which a command prints what it found.
type Output struct {
	form  string
	words []string // that it may be
}

// Bind binds -o and --json. Some commands have more forms than text, json and yaml.
func (o *Output) Bind(fs *pflag.FlagSet, more ...string) {
	o.form, o.words = "text", append([]string{"text", "json", "yaml"}, more...)
	fs.VarP(o, "output", "o", "`FORMAT`: "+strings.Join(o.words, ", "))
	fs.BoolFunc("json", "like -o json", func(string) error { return o.Set("json") })
}

func (o *Output) String() string { return o.form }

// Type implements pflag.Value.
func (o *Output) Type() string { return "string" }

// Set implements pflag.Value.
func (o *Output) Set(form string) error {
	if o.form = form; !slices.Contains(o.words, form) {
		return errors.New("must be one of " + strings.Join(o.words, ", "))
	}
	return nil
}

// Is reports whether a form is wanted.
func (o *Output) Is(form string) bool { return o.form == form }

// Write writes a value as JSON or YAML, or else as text.
func (o *Output) Write(out io.Writer, value any, text func(io.Writer) error) error {
	switch o.form {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(value)
	case "yaml":
		data, err := yaml.Marshal(value)
		if err == nil {
			_, err = out.Write(append([]byte("---\n"), data...)) // several documents may follow each other
		}
		return err
	}
	return text(out)
}

// WrongValue makes the error about the value of a flag one that says what the value must be.
func WrongValue(_ *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return Wrong(err)
	}
	must := map[string]string{
		"int": "must be a whole number", "float32": "must be a number", "bool": "must be true or false", "duration": "must be a time such as 10ms, 5s or 2m",
	}[wrong.GetFlag().Value.Type()]
	return Wrong(fmt.Errorf("--%s=%s: %s", wrong.GetFlag().Name, wrong.GetValue(), cmp.Or(must, wrong.Unwrap().Error())))
}

const whyLogFiles = "the log goes to standard error"

// bindIgnored binds flags of kube-proxy on Linux that have no effect in Verdict. Verdict accepts them, so that the
// arguments of an existing DaemonSet keep working, and logs a warning for each one that is set.
func bindIgnored(fs *pflag.FlagSet) map[string]string {
	ignored := map[string]string{}
	switches := []string{"logtostderr", "alsologtostderr", "add-dir-header", "one-output", "skip-headers", "skip-log-headers"}
	for _, name := range append(switches, "log-dir", "log-file", "log-file-max-size", "log-backtrace-at", "stderrthreshold") {
		ignored[name] = whyLogFiles
	}
	for _, f := range kubeproxyconfig.Fields() {
		if f.Ignored != "" {
			ignored[f.Ignored] = f.Why
		}
	}
	for name, why := range ignored {
		f := fs.VarPF(new(ignoredValue), name, "", "has no effect: "+why)
		f.Hidden = true
	}
	for _, name := range append(switches, "log-json-split-stream", "log-text-split-stream") {
		fs.Lookup(name).NoOptDefVal = "true" // a switch needs no value
	}
	return ignored
}

// ignoredValue is the value of a flag without effect. It may be anything.
type ignoredValue string

func (v *ignoredValue) String() string     { return string(*v) }
func (v *ignoredValue) Set(s string) error { *v = ignoredValue(s); return nil }
func (v *ignoredValue) Type() string       { return "string" }

// CompleteValues has the shell offer the values of flags: schedulers, and what annotations have as well.
func CompleteValues(cmd *cobra.Command) {
	words := map[string][]string{
		"default-scheduler": dataplane.Schedulers(), "ipvs-scheduler": ipvsctl.Schedulers(),
	}
	for _, a := range state.Annotations() {
		if a.Flag != "" {
			words[a.Flag] = a.Words
		}
	}
	for flag, list := range words {
		if cmd.Flags().Lookup(flag) != nil {
			complete := cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists, so there is no error
		}
	}
}

// aliases are flags of kube-proxy that set a flag of Verdict with another name.
var aliases = []struct {
	name, flag string
	// value returns the value for Verdict's flag from the one that was given and the present one. It returns false if the
	// flag has no effect.
	value func(given, present string, mode config.ProxyMode) (string, bool)
}{
	{"logging-format", "log-format", func(given, _ string, _ config.ProxyMode) (string, bool) { return given, true }},
	{"iptables-min-sync-period", "min-sync-period", func(given, _ string, mode config.ProxyMode) (string, bool) {
		return given, mode != config.ProxyModeIPVS
	}},
	{"ipvs-min-sync-period", "min-sync-period", func(given, _ string, mode config.ProxyMode) (string, bool) {
		return given, mode == config.ProxyModeIPVS
	}},
	{"healthz-port", "healthz-bind-address", portOf},
	{"metrics-port", "metrics-bind-address", portOf},
}

// portOf adds a port to an address without one. Port 0 turns the listener off.
func portOf(given, present string, _ config.ProxyMode) (string, bool) {
	if given == "0" {
		return "", true
	}
	_, err := netip.ParseAddr(present)
	return net.JoinHostPort(present, given), err == nil
}

// applyAliases sets the flags that aliases on the command line mean. A flag that was given by its own name stays, but an
// alias may complete it.
func (c *CommandLine) applyAliases() error {
	for _, a := range aliases {
		if !c.flags.Changed(a.name) {
			continue
		}
		target := c.flags.Lookup(a.flag)
		value, ok := a.value(valueOf(c.flags.Lookup(a.name)), valueOf(target), c.mode())
		if !ok {
			continue
		}
		if err := c.flags.Set(a.flag, value); err != nil {
			return fmt.Errorf("--%s: %w", a.name, err)
		}
	}
	return nil
}
