package elements

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// later has the changes of service ports that wait, because the next transaction has enough without them. Until its turn comes,
// everything of such a port stays wanted as it is. So each transaction leads from one state that was wanted to the next one: chains,
// hash tables, shared elements and limits need no other rules, and a process that starts in between finds nothing unusual.
//
// A frontend that moves from one port to another does so in one transaction: a port that waits comes with whatever gains or loses a
// frontend that it loses or gains. Some ports never wait: ranges may have frontends of others, and IPVS has an order of its own. Others
// wait for their hash tables, most of which come before, in pieces: see hashing/ahead.go.
type later struct {
	limit   int                            // of the changes in a transaction, from which on others wait; 0: none wait
	changes int                            // since the last transaction
	ports   map[string]*postponed          // by name
	of      map[string]int                 // how many of them Services have
	turned  []string                       // Services that have begun or stopped waiting since TakeTurned, or both
	turns   int                            // that were given
	ready   line                           // whose hash tables were there at some time; some wait no more
	moving  map[string][]*postponed        // by frontends that they gain or lose
	moved   map[string]bool                // frontends that ports have gained or lost since the last transaction
	at      map[string]map[*postponed]bool // by the places of frontends that they gain or lose
	ranges  map[string]bool                // places of ranges that ports have gained or lost since the last transaction
	next    []*postponed                   // they come with one that came
	unlike  []string                       // ports that got something else than Set said
}

// postponed is what a port is to become.
type postponed struct {
	turn   int
	inLine bool           // it is in ready
	want   *contents.Port // nil: it waits no more
	gone   bool
	short  Shortfall          // as Set said
	moves  []string           // frontends that it gains or loses
	tables []*hashing.Awaited // that it is to have
}

// line is a heap of ports: the one whose turn it is comes first.
type line []*postponed

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].turn < l[j].turn }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *line) Push(one any)      { *l = append(*l, one.(*postponed)) }
func (l *line) Pop() any {
	last := len(*l) - 1
	one := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return one
}

// ready reports whether the tables are there that a port is to have, or can be there with the next transaction.
func ready(tables []*hashing.Awaited) bool {
	return !slices.ContainsFunc(tables, func(a *hashing.Awaited) bool { return !a.Ready() })
}

func release(tables []*hashing.Awaited) {
	for _, a := range tables {
		a.Release()
	}
}

func newLater() *later {
	return &later{ports: map[string]*postponed{}, of: map[string]int{}, moving: map[string][]*postponed{}, moved: map[string]bool{},
		at: map[string]map[*postponed]bool{}, ranges: map[string]bool{}}
}

// eachPort is how many changes a port counts at least: it takes time to find out that nothing differs.
const eachPort = 4

// note notes that a port gains or loses an element.
func (l *later) note(r *ledger.Record) {
	if l.limit == 0 {
		return
	}
	l.changes++
	switch {
	case r.Set.Says() == program.Nothing:
	case r.Set.HasPorts():
		first := string(r.Key[:len(r.Key)/2])
		for _, at := range placesOf([]string{first, first[len(first)-2*portLength:]}) {
			l.ranges[at] = true
			l.next = append(l.next, slices.SortedFunc(maps.Keys(l.at[at]), func(a, b *postponed) int { return cmp.Compare(a.want.Name, b.want.Name) })...)
		}
	default:
		l.moved[string(r.Key)] = true
		l.next = append(l.next, l.moving[string(r.Key)]...)
	}
}

// portLength is that of a port in the key of a frontend, which ends in protocol and port.
const portLength = 4

// placesOf are where some frontends are: their addresses and protocols, or the protocols of node ports. If a range moves there, so may
// they.
func placesOf(frontends []string) (places []string) {
	for _, key := range frontends {
		places = append(places, key[:len(key)-portLength])
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// begin notes that a transaction has what came so far.
func (l *later) begin() {
	l.changes = 0
	l.moved, l.ranges = map[string]bool{}, map[string]bool{} // a map keeps the size that it once had, and clearing it costs that size
	if len(l.ports) == 0 {
		l.ready = nil
	}
}

// wake has ports get in line that wait, and whose hash tables may be there.
func (l *later) wake(names ...string) {
	for _, name := range names {
		if one := l.ports[name]; one != nil && !one.inLine {
			one.inLine = true
			heap.Push(&l.ready, one)
		}
	}
}

// forget notes that a port does not wait.
func (l *later) forget(name string) {
	one := l.ports[name]
	if one == nil {
		return
	}
	for _, key := range one.moves {
		l.moving[key] = slices.DeleteFunc(l.moving[key], func(other *postponed) bool { return other == one })
		if len(l.moving[key]) == 0 {
			delete(l.moving, key)
		}
	}
	for _, at := range placesOf(one.moves) {
		if delete(l.at[at], one); len(l.at[at]) == 0 {
			delete(l.at, at)
		}
	}
	release(one.tables)
	one.want, one.moves, one.tables = nil, nil, nil
	delete(l.ports, name)
	l.count(serviceOf(name), -1)
}

// count counts a port of a Service that begins or stops waiting.
func (l *later) count(service string, n int) {
	had := l.of[service]
	if l.of[service] = had + n; had+n == 0 {
		delete(l.of, service)
	}
	if had == 0 || had+n == 0 {
		l.turned = append(l.turned, service)
	}
}

// takeUnlike returns the ports that got something else than Set said, when none waits any more.
func (l *later) takeUnlike() (names []string) {
	if len(l.ports) == 0 {
		names, l.unlike = l.unlike, nil
	}
	return names
}

// Limit has ports wait from so many changes on that the next transaction has; 0: none wait.
func (l *later) Limit(changes int) { l.limit = changes }

// Waits reports whether a Service has ports whose changes wait.
func (l *later) Waits(service string) bool { return l.of[service] > 0 }

// TakeTurned returns the Services that may have begun or stopped waiting since the last call. One may be there twice.
func (l *later) TakeTurned() (services []string) {
	services, l.turned = l.turned, nil
	return services
}

// enough reports whether the next transaction has enough changes, or one of so many parts of it.
func (l *later) enough(parts int) bool { return l.limit > 0 && l.changes >= l.limit/parts }

// postpone has the change of a port wait, if it can and there are enough without it.
func (c *Contents) postpone(want *contents.Port, gone bool) *postponed {
	l := c.Later
	one := l.ports[want.Name] // it keeps its turn
	tables := c.await(want)   // those that it waits for already stay
	parts := 1
	if len(l.ports) > 0 {
		parts = 2 // those that wait get the other half
	}
	l.forget(want.Name)
	if ready(tables) && !l.enough(parts) {
		release(tables)
		return nil
	}
	moves, tied := c.Ports.byName[want.Name].moves(want)
	places := placesOf(moves)
	if tied || slices.ContainsFunc(moves, func(key string) bool { return l.moved[key] }) || slices.ContainsFunc(places, func(at string) bool { return l.ranges[at] }) {
		release(tables)
		return nil
	}
	if one == nil {
		l.turns++
		one = &postponed{turn: l.turns}
	}
	*one = postponed{turn: one.turn, inLine: one.inLine, want: want, gone: gone, moves: moves, tables: tables}
	fit(want, c.tablesInUse, c.Chains.Exact, &one.short)
	l.ports[want.Name] = one
	l.count(serviceOf(want.Name), 1)
	for _, key := range moves {
		l.moving[key] = append(l.moving[key], one)
	}
	for _, at := range places {
		if l.at[at] == nil {
			l.at[at] = map[*postponed]bool{}
		}
		l.at[at][one] = true
	}
	if ready(tables) {
		l.wake(want.Name)
	}
	return one
}

// await has the hash tables come that a port is to have.
func (c *Contents) await(want *contents.Port) (tables []*hashing.Awaited) {
	if c.Later.limit == 0 || !want.Method.Hashes() {
		return nil
	}
	var short Shortfall
	fits := fit(want, c.tablesInUse, c.Chains.Exact, &short)
	for i, endpoints := range [2][]contents.Endpoint{fits.Cluster, fits.Local} {
		if !classOf(&fits, endpoints, i == 1).Hashed() {
			continue
		}
		var has *hashing.Pool
		if p := c.Ports.byName[want.Name]; p != nil {
			has = p.pools[i].hash
		}
		tables = append(tables, c.Hash.Await(has, want.Name, endpoints))
	}
	return tables
}

// moves returns the frontends that a port, if there is one, is to gain or lose, and whether it cannot wait.
func (p *port) moves(want *contents.Port) (moves []string, tied bool) {
	const had, gets = 1, 2
	frontends := map[string]int{}
	if p != nil {
		records, _ := p.account.Wanted().(ledger.Records)
		for r, next, ok := records.At(0); ok; r, next, ok = records.At(next) {
			switch says := r.Set.Says(); {
			case r.Set.HasPorts() || says == program.Balanced:
				return nil, true
			case says != program.Nothing:
				frontends[string(r.Key)] = had
			}
		}
	}
	var b program.Builder
	for i := range want.Frontends {
		fe := &want.Frontends[i]
		if fe.IPVS || fe.EndPort != 0 {
			return nil, true
		}
		b.Arena = b.Arena[:0]
		b.Frontend(fe.Addr, fe.Port, 0, want.Protocol)
		frontends[string(b.Arena)] |= gets
	}
	for key, is := range frontends {
		if is != had|gets {
			moves = append(moves, key)
		}
	}
	slices.Sort(moves) // so that equal changes make equal transactions
	return moves, false
}

// Enter makes ports as they are to be that wait and whose hash tables are there, one at least, until the transaction has enough. Slots
// of tables that are not there count. Ports that wait for tables are not looked at: a tenant may have any number of them.
func (c *Contents) Enter(w program.Writer) {
	l := c.Later
	var first []*postponed
	if l.limit > 0 {
		l.changes += c.Hash.WriteAhead(l.limit, max(l.limit-l.changes, l.limit/2))
		first = c.inPlace()
	} else {
		first = slices.Collect(maps.Values(l.ports)) // their tables come at once
	}
	slices.SortFunc(first, func(a, b *postponed) int { return cmp.Compare(a.turn, b.turn) })
	for _, one := range first {
		c.enter(w, one)
	}
	for n := 0; n == 0 || !l.enough(1); {
		if l.wake(c.Hash.TakeReady()...); len(l.ready) == 0 {
			break
		}
		one := heap.Pop(&l.ready).(*postponed)
		if one.inLine = false; one.want != nil && ready(one.tables) { // otherwise its tables are reported again
			c.enter(w, one)
			n++
		}
	}
}

// inPlace are the ports whose hash tables change in place, all of a table at once. If one of them waits for another table, they all
// wait.
func (c *Contents) inPlace() (list []*postponed) {
	for again := true; again; {
		list, again = nil, false
		for _, name := range c.Hash.InPlace() {
			one := c.Later.ports[name]
			if list = append(list, one); ready(one.tables) {
				continue
			}
			again = true
			for _, a := range one.tables {
				a.Hold()
			}
		}
	}
	return list
}

// enter makes ports as they are to be that wait, and those that come with them and with those that came before.
func (c *Contents) enter(w program.Writer, list ...*postponed) {
	l := c.Later
	for l.next = append(l.next, list...); len(l.next) > 0; {
		one := l.next[0]
		if l.next = l.next[1:]; one == nil || one.want == nil {
			continue
		}
		want := one.want
		l.forget(want.Name)
		switch p := c.Ports.byName[want.Name]; {
		case !one.gone:
			if short := c.set(w, want); !slices.Equal(short, one.short) {
				l.unlike = append(l.unlike, want.Name)
			}
		case p != nil:
			c.remove(w, p)
		}
	}
}
