package nft

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// piecewise is what traffic sees of a state: of each frontend and of each service port.
type piecewise map[string]string

var portComment = regexp.MustCompile(`(?:comment ")?(?:\S+ )?(ns/port-\d+:)[pq]\b`)

// seenIn is what traffic sees. A port that is renamed keeps what it has until its turn comes, so names count without their ends.
func seenIn(t *testing.T, m *Memory) piecewise {
	t.Helper()
	frontends, ports := map[string][]string{}, map[string][]string{}
	note := func(where, line string) {
		if name := portComment.FindStringSubmatch(line); name != nil {
			at := strings.Fields(where)[0] + " " + name[1]
			ports[at] = append(ports[at], portComment.ReplaceAllString(where+" "+line, "$1"))
		}
	}
	for where, lines := range meaningOf(t, parseListing(t, m.String())) {
		f := strings.Fields(where)
		switch {
		case slices.Contains(f, "cluster-ips") || slices.Contains(f, "external-ips") || slices.Contains(f, "hairpin"): // there for some port
		case slices.Contains(f, "chain") || slices.Contains(f, "of") && f[1] == "elements" || f[len(f)-1] == "generation":
		case f[1] == "set": // each element
			for _, line := range lines {
				note(where, line)
				frontends[f[0]+" "+f[2]+" "+strings.Split(line, " comment ")[0]] = []string{"there"}
			}
		default: // a frontend, a pool or tokens
			note(where, strings.Join(lines, " "))
			note(where, "")
			if f[1] == "services" || f[1] == "nodeports" || f[1] == "range-services" {
				key := f[0] + " frontend " + strings.Join(f[2:], " ")
				frontends[key] = append(frontends[key], strings.Join(lines[1:], " "))
			}
		}
	}
	seen := piecewise{}
	for _, all := range []map[string][]string{frontends, ports} {
		for where, list := range all {
			slices.Sort(list)
			seen[where] = strings.Join(list, "\n")
		}
	}
	return seen
}

// within finds what is in none of some states.
func (s piecewise) within(states []piecewise) error {
	all := map[string]bool{}
	for _, state := range append(states, s) {
		for where := range state {
			all[where] = true
		}
	}
	for _, where := range slices.Sorted(maps.Keys(all)) {
		is := s[where]
		if !slices.ContainsFunc(states, func(state piecewise) bool { return state[where] == is }) {
			var were []string
			for _, state := range states {
				were = append(were, state[where])
			}
			return fmt.Errorf("%s:\n%s\nwas or is to be\n%s", where, is, strings.Join(slices.Compact(were), "\n\n"))
		}
	}
	return nil
}

// brittle is a kernel that does not take, or loses, some transactions.
type brittle struct {
	kernel.NFTables
	w *world
}

var errLost = errors.New("the answer was lost")

func (k *brittle) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	if k.w == nil || !k.w.one(10) {
		return k.NFTables.Send(b)
	}
	switch k.w.rand.IntN(3) {
	case 0:
		return kernel.Rejected, &nlmsg.Ack{Seq: b.First, Errno: unix.EBUSY}, unix.EBUSY
	case 1:
		_, _, _ = k.NFTables.Send(b)
	}
	return kernel.Unknown, nil, errLost
}

// TestPieces makes random changes, which do not fit into a transaction. After each piece, each service port and each frontend is
// as it was at some time since nothing waited, or as it is to be, and so it is if the kernel refuses a piece, if one gets lost, or
// if another process goes on in between. In the end, the tables mean the same as a new build.
func TestPieces(t *testing.T) {
	seeds, steps := uint64(12), 20
	if testing.Short() {
		seeds = 4
	}
	pieces, waited := 0, 0
	for seed := range seeds {
		w, o := newWorld(seed), Options{Piece: 1 + int(seed/2)*8}
		w.plain = seed%2 == 0 // otherwise, few changes wait
		m := OpenMemory(o)
		m.SetGlobals(w.globals)
		mustApply(t, m.Engine)
		fragile := &brittle{NFTables: m.kernel, w: w}
		m.conn = fragile
		states, told := []piecewise{{}}, map[string]bool{}
		for step := range steps {
			if step%7 == 6 {
				again, err := m.Restart(o)
				if err != nil {
					t.Fatal(err)
				}
				m, told = again, map[string]bool{}
				m.conn = fragile
				for _, p := range w.ports {
					mustSet(t, m.Engine, p)
				}
				m.SetGlobals(w.globals)
			}
			w.changePorts(t, m.Engine)
			states = append(states, seenIn(t, w.build(t)))
			for range w.rand.IntN(4) {
				apply := m.Apply
				switch w.rand.IntN(10) {
				case 0:
					apply = func() (Result, error) { return m.Repair(kernel.Interference{Replaced: true}) }
				case 1:
					m.SetGlobals(w.globals) // as a reload does
				}
				r, err := apply()
				when := fmt.Sprintf("seed %d, step %d, %d wait", seed, step, len(waiting(m.Engine)))
				maps.Copy(told, r.Waits)
				maps.DeleteFunc(told, func(_ string, waits bool) bool { return !waits })
				if is := slices.Sorted(maps.Keys(told)); r.Outcome == kernel.Applied && !slices.Equal(is, waiting(m.Engine)) {
					t.Fatalf("%s: %v wait, and the results say that %v do", when, waiting(m.Engine), is)
				}
				if err := seenIn(t, m).within(states); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				if err != nil && !errors.Is(err, errLost) && !errors.Is(err, unix.EBUSY) {
					t.Fatalf("%s: %v", when, err)
				}
				if i, err := m.FindInterference(); err == nil && !i.Empty() && m.mode == synced {
					t.Fatalf("%s: somebody changed %s", when, &i)
				}
				if pieces++; err == nil && len(waiting(m.Engine)) == 0 {
					states = []piecewise{seenIn(t, m)}
					break
				}
				waited += len(waiting(m.Engine))
			}
		}
		fragile.w = nil
		for mustApply(t, m.Engine); len(waiting(m.Engine)) > 0; mustApply(t, m.Engine) {
		}
		w.compareInMemory(t, steps, m)
	}
	if t.Logf("in %d transactions, %d changes waited", pieces, waited); waited < pieces/2 {
		t.Errorf("in %d transactions, %d changes waited: the test shows too little", pieces, waited)
	}
}

// changePorts changes some ports, each once, and then deletes others, as the dataplane does: at no time is a frontend that moves to
// another port wanted by none.
func (w *world) changePorts(t *testing.T, e *Engine) {
	before, scratch := maps.Clone(w.ports), OpenMemory(Options{})
	for range 1 + w.rand.IntN(12) {
		w.changePort(t, scratch.Engine)
	}
	ids := slices.SortedFunc(maps.Keys(w.ports), func(a, b portID) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	w.rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		p, other := w.ports[id], id.renamed()
		_, had := before[id]
		_, hadOther := before[other]
		_, hasOther := w.ports[other]
		if p.Formerly = ""; !had && hadOther && !hasOther {
			p.Formerly = other.name
		}
		if w.ports[id] = p; !had || fmt.Sprint(before[id]) != fmt.Sprint(p) {
			mustSet(t, e, p)
		}
	}
	for id := range before {
		if _, has := w.ports[id]; !has {
			e.Delete(id.family, id.name)
		}
	}
}

// build makes the tables anew.
func (w *world) build(t *testing.T) *Memory {
	m := OpenMemory(Options{})
	example{ports: slices.Collect(maps.Values(w.ports)), globals: w.globals}.install(t, m.Engine)
	return m
}

// TestPieceIsBounded: however much one Service changes, a transaction has so many changes, and those of one port beyond. A port of
// another Service does not wait.
func TestPieceIsBounded(t *testing.T) {
	const piece, count = 100, 200
	m := OpenMemory(Options{Piece: piece})
	ports := manyPorts(program.IPv4, 0, count)
	mustSet(t, m.Engine, ports...)
	mustApply(t, m.Engine)
	other := manyPorts(program.IPv4, 1000, 1)
	for _, change := range []func(i int){
		func(i int) {
			ports[i].Cluster = manyPorts(program.IPv4, 2000+i, 1)[0].Cluster
			mustSet(t, m.Engine, ports[i])
		},
		func(i int) {
			ports[i].Frontends = manyPorts(program.IPv4, 3000+i, 1)[0].Frontends
			mustSet(t, m.Engine, ports[i])
		},
		func(i int) { m.Delete(program.IPv4, ports[i].Name) },
		func(i int) { mustSet(t, m.Engine, ports[i]) },
	} {
		for i := range ports {
			change(i)
		}
		for transactions := 1; ; transactions++ {
			r := mustApply(t, m.Engine)
			if n := r.Added + r.Deleted; n > piece+20 || r.Full {
				t.Fatalf("transaction %d: %d changes", transactions, n)
			}
			if len(waiting(m.Engine)) == 0 {
				if transactions < 5 {
					t.Errorf("%d transactions", transactions)
				}
				break
			}
			if transactions > 1 && !m.serves(t, other[0].Name) {
				t.Fatalf("transaction %d: another port waits", transactions)
			}
			if transactions == 1 {
				mustSet(t, m.Engine, other...)
			}
		}
		m.Delete(program.IPv4, other[0].Name)
		mustApply(t, m.Engine)
	}
	fresh := OpenMemory(Options{})
	mustSet(t, fresh.Engine, ports...)
	mustApply(t, fresh.Engine)
	if err := seenIn(t, m).within([]piecewise{seenIn(t, fresh)}); err != nil {
		t.Error(err)
	}
}

// serves reports whether the kernel has a pool of a port.
func (m *Memory) serves(t *testing.T, name string) bool {
	t.Helper()
	l, err := m.List(func(n string) bool { return n == name })
	if err != nil {
		t.Fatal(err)
	}
	return len(l.Frontends) > 0
}
