package flags

import (
	"cmp"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Groups of flags that other commands than run have.
const (
	Source   = "source" // of objects, and properties of the node
	Backend  = "backend"
	Budgets  = "budgets"
	Outliers = "outliers"
	Log      = "log"
)

// Bind binds the flags of some groups; without groups, all of them. The tags of config.Settings say which there are.
func Bind(fs *pflag.FlagSet, s *config.Settings, groups ...string) {
	bind(fs, reflect.ValueOf(s).Elem(), "", groups)
}

func bind(fs *pflag.FlagSet, settings reflect.Value, group string, wanted []string) {
	for field, value := range settings.Fields() {
		in := cmp.Or(field.Tag.Get("in"), group)
		switch {
		case value.Kind() == reflect.Struct:
			bind(fs, value, in, wanted)
		case len(wanted) == 0 || slices.Contains(wanted, in):
			bindSetting(fs, value, field.Tag)
		}
	}
}

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
	default:
		panic("no kind of flag for the setting " + name) // TestEverySettingHasAFlag would not pass
	}
}

// ignoredFlags are flags of kube-proxy on Linux that have no effect in Verdict. Verdict accepts them, so that the
// arguments of an existing DaemonSet keep working, and logs a warning for each one that is set.
type ignoredFlags map[string]string // why, by the name of the flag

const whyLogFiles = "the log goes to standard error"

func bindIgnored(fs *pflag.FlagSet) ignoredFlags {
	ignored := ignoredFlags{
		"log-dir": whyLogFiles, "log-file": whyLogFiles, "logtostderr": whyLogFiles, "alsologtostderr": whyLogFiles,
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
	for _, name := range []string{
		"log-json-split-stream", "log-text-split-stream", "logtostderr", "alsologtostderr",
	} {
		fs.Lookup(name).NoOptDefVal = "true" // a switch needs no value
	}
	return ignored
}

// ignoredValue is the value of a flag without effect. It may be anything.
type ignoredValue string

func (v *ignoredValue) String() string     { return string(*v) }
func (v *ignoredValue) Set(s string) error { *v = ignoredValue(s); return nil }
func (v *ignoredValue) Type() string       { return "string" }

// Warn logs a warning for each ignored flag of the command line.
func (i ignoredFlags) warn(given []*pflag.Flag, log *slog.Logger) {
	for _, f := range given {
		if why := i[f.Name]; why != "" {
			log.Warn("this flag of kube-proxy has no effect", "flag", "--"+f.Name, "value", f.Value.String(), "reason", why)
		}
	}
}

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
