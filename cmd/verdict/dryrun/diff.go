package dryrun

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/objects"
	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Diff prints what a daemon that starts now would write: nft commands, and commands of ipvsadm and ip in comments. It reports
// whether there is anything.
func Diff(ctx context.Context, s *config.Settings, o *Options, log *slog.Logger, stdout, stderr io.Writer) (bool, error) {
	var d *differ
	torn := false
	err := kernel.With(kernel.Options{}, func(c *kernel.Conn) (err error) {
		torn, err = inspect.Whole(c, func() error {
			d = &differ{conn: c, names: map[pool]string{}, printed: map[string]bool{}}
			return d.run(ctx, s, o, log)
		})
		return err
	})
	if err != nil {
		return false, err
	}
	if torn {
		fmt.Fprintln(stderr, "verdict: the tables changed during every attempt to read them, so some differences may be gone")
	}
	fmt.Fprint(stderr, d.problems.take(d.files))
	for line := range strings.Lines(d.changes()) {
		d.text.WriteString("# " + line)
	}
	if _, err = io.WriteString(stdout, d.text.String()); err != nil {
		err = fmt.Errorf("write the differences: %w", err)
	}
	return d.text.Len() > 0, err
}

// differ runs a pass over engines that have read the kernel, and does not let them write.
type differ struct {
	*Renderer
	conn    *kernel.Conn
	names   map[pool]string // in the comments of pools that are written
	printed map[string]bool // a guard may be in two transactions
	text    strings.Builder
}

type pool struct {
	program.Family
	number uint32
}

func (d *differ) run(ctx context.Context, s *config.Settings, o *Options, log *slog.Logger) (err error) {
	if d.Renderer, err = newRenderer(s, o, log); err != nil {
		return err
	}
	both := program.Families()
	families := both[:]
	if !preflight.HasIPv6() {
		families = []program.Family{program.IPv4}
	}
	if d.rules, err = nft.New(&unwritten{NFTables: d.conn, note: d.note}, nft.Options{Families: families}); err != nil {
		return err
	}
	if ipvsctl.Loaded() {
		k, err := ipvsctl.Dial(0)
		if err != nil {
			return err
		}
		defer k.Close()
		if d.servers, err = ipvsctl.New(ipvs.Options(s), unchanged{k}); err != nil {
			return err
		}
		if s.Backend == config.BackendNFT && d.servers.Empty() { // otherwise they go
			d.servers = nil
		}
	}
	d.slowPath, d.bridges = func() string { return kernel.WhySlow(kernel.Options{Families: families}) }, kernel.BridgesStay
	refuses := false
	for _, f := range families {
		was, err := d.conn.SurveyChains(f)
		if err != nil {
			return err
		}
		_, there := was.Chains[program.RefusedChain]
		refuses = refuses || there
	}
	d.loop = d.NewLoop(refusing{d.dataplane(), refuses})
	kept := manifests.Options{Serving: inspect.Serving, ReadOnly: true} // as a daemon that starts
	if _, err := os.Stat(s.StateDir); err == nil {
		kept.Copies = objects.StateFile(s.StateDir, objects.Copies, log)
	}
	if err := d.load(ctx, d.folder(kept)); err != nil {
		return err
	}
	return d.loop.Once()
}

// refusing has the kernel notice which endpoints refuse, although no Service may ask for it. A daemon does not take the
// rules for that out again, so a kernel that has them has what is wanted.
type refusing struct {
	*dataplane.Dataplane
	always bool
}

func (r refusing) SetEnvironment(env dataplane.Environment) []state.Name {
	env.Refusing = env.Refusing || r.always && env.Unanswered
	return r.Dataplane.SetEnvironment(env)
}

// note prints a transaction.
func (d *differ) note(t *program.Transaction) {
	for _, f := range program.Families() {
		if t.Concerns(f) {
			d.tidy(t, f)
		}
	}
	onlyFlags := !slices.ContainsFunc(t.Before, func(o program.Operation) bool { return o.Kind != program.AddTable })
	for line := range strings.Lines(t.Print(d.owner)) {
		if onlyFlags && strings.HasPrefix(line, "add table") {
			line = "# then, because the table sleeps and no rule of it sees packets: " + line // the kernel refuses both at once
		}
		if !d.printed[line] {
			d.printed[line] = true
			d.text.WriteString(line)
		}
	}
}

// tidy completes what is deleted by what the kernel has, and leaves out what a daemon that runs keeps for later: chains of
// classes and of prefix lengths that nothing needs now. It also leaves out guards that are there.
func (d *differ) tidy(t *program.Transaction, f program.Family) {
	kept := d.kept(t, f)
	stays := func(o program.Operation) bool {
		return o.Family == f && kept[o.Name]
	}
	t.Before, t.After = slices.DeleteFunc(t.Before, stays), slices.DeleteFunc(t.After, stays)
	defs := program.Program{Family: f}.Sets()
	for id := range program.SetCount {
		c := &t.Changes[f.Index()][id]
		for i, e := range c.Delete {
			if found, is, err := d.conn.Lookup(f, id, e.Key(t.Arena)); is && err == nil {
				c.Delete[i] = found.Element(&defs[id], &t.Builder)
			}
		}
	}
	c := &t.Changes[f.Index()]
	c[program.Dispatch].Delete = slices.DeleteFunc(c[program.Dispatch].Delete, func(e program.Element) bool { return kept[e.Label] })
	c[program.IPVSAddresses].Add = slices.DeleteFunc(c[program.IPVSAddresses].Add, func(e program.Element) bool {
		_, is, err := d.conn.Lookup(f, program.IPVSAddresses, e.Key(t.Arena))
		return is && err == nil
	})
	for _, e := range c[program.Pools].Add {
		d.names[pool{f, binary.NativeEndian.Uint32(e.Key(t.Arena))}] = e.Label
	}
}

// kept are the chains that a daemon that runs would keep.
func (d *differ) kept(t *program.Transaction, f program.Family) map[string]bool {
	kept, groups := map[string]bool{}, map[string]bool{}
	for _, c := range (program.Program{Family: f, Lengths: program.AllLengths(f)}).GroupChains() {
		groups[c.Name] = true
	}
	fewer := false
	for _, o := range t.After {
		_, rest, _ := strings.Cut(o.Name, "-")
		_, class := program.ParseClass(o.Name)
		_, tokens := program.ParseClass(rest)
		if o.Kind == program.DeleteChain && o.Family == f && (class || tokens || groups[o.Name]) {
			kept[o.Name] = true
			fewer = fewer || groups[o.Name]
		}
	}
	more := slices.ContainsFunc(t.Before, func(o program.Operation) bool { return o.Kind == program.AddChain && groups[o.Name] })
	if fewer && !more {
		was, _ := d.conn.Survey(f) // what cannot be read is printed
		p := program.Program{Family: f, Lengths: was.Lengths(f)}
		kept[program.SourceRangesChain] = was.Rules[program.SourceRangesChain] == rule.RulesOf(f, p.SourceRanges().Rules)
	}
	return kept
}

// owner names, in a comment, the service port of an element that has only a number for it.
func (d *differ) owner(f program.Family, id program.SetID, e *program.Element, arena []byte) string {
	key := program.Program{Family: f}.Sets()[id].Key
	if e.Label != "" || key[0].Name != program.TypeClassID.Name || id == program.HashSlots {
		return ""
	}
	number := binary.NativeEndian.Uint32(e.Key(arena))
	if token := id == program.StickyEndpoints || id == program.StickyAddresses; !token && number&^program.PoolMask != 0 {
		return "" // of a hash table, which several may share
	}
	for _, n := range []uint32{number & program.PoolMask, number&program.PoolMask ^ program.LocalBit} {
		name := d.names[pool{f, n}]
		if name == "" {
			found, _, _ := d.conn.Lookup(f, program.Pools, binary.NativeEndian.AppendUint32(nil, n)) // the name is only for people
			name = found.Comment
		}
		if name != "" {
			return " # " + strings.TrimSuffix(name, program.LocalSuffix)
		}
	}
	return ""
}
