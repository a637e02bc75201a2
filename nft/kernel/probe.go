package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// A probe finds out what the kernel lacks of what the program needs. It sends trial transactions: the kernel checks
// them as always, loads modules for them, and undoes them. They write a table of their own that is dormant, so no
// packet sees anything of it.
//
// Kernels ignore attributes that they do not know. So a trial cannot tell that a kernel lacks comments of tables (5.10)
// or counters of elements (5.7). Such a kernel lacks "delete" in dynamic sets, too, which a trial does tell.

// Feature is something of nf_tables that the program needs.
type Feature struct {
	Family program.Family
	Name   string
	Module string // the kernel modules that have it, unless they are built in
	Err    error  // nil: the kernel has it; otherwise: what the kernel refused, and its error
}

// Probe lists what the program needs, and what of it the kernel refuses. It changes nothing.
func Probe(o Options) (list []Feature, err error) {
	err = With(o, func(c *Conn) (err error) {
		list, err = TryFeatures(c, o.Served(), program.Features())
		return err
	})
	return list, err
}

// TryFeatures tries everything at once. Only if the kernel refuses that, it tries each feature alone, because the
// kernel takes milliseconds to undo a trial.
func TryFeatures(k NFTables, families []program.Family, list []program.Feature) ([]Feature, error) {
	var all program.Transaction
	var result []Feature
	for _, f := range families {
		all.Do(tableForTrial(f))
		for i, x := range list {
			try(&all, f, &x, fmt.Sprintf("probe-%d", i))
			result = append(result, Feature{Family: f, Name: x.Name, Module: x.Modules(f)})
		}
	}
	refused := sendTrial(k, &all)
	if refused == nil {
		return result, nil
	}
	found := false
	for i := range result {
		var one program.Transaction
		f := result[i].Family
		one.Do(tableForTrial(f))
		try(&one, f, &list[i%len(list)], "probe")
		if err := sendTrial(k, &one); lacking(err) {
			result[i].Err, found = err, true
		} else if err != nil {
			return nil, fmt.Errorf("probe nf_tables for %s: %w", result[i].Name, err)
		}
	}
	if !found {
		return result, fmt.Errorf("probe nf_tables: it takes each feature alone, but not all of them: %w", refused)
	}
	return result, nil
}

// lacking reports whether an error says that the kernel does not have something. All others may come from a kernel that
// is short of memory, or from a process without rights.
func lacking(err error) bool {
	lacks := []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EINVAL, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ENOSYS}
	return slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) })
}

func tableForTrial(f program.Family) program.Operation {
	return program.Operation{Kind: program.AddTable, Family: f, Table: probeTable, Flags: unix.NFT_TABLE_F_DORMANT}
}

// try adds a chain with the rules of a feature, and the sets and chains that these need.
func try(t *program.Transaction, f program.Family, x *program.Feature, name string) {
	p := program.Program{Family: f}
	rules, defs := x.Rules(p), p.Sets()
	var needed []string
	for _, r := range rules {
		sets, chains := r.References()
		for _, c := range chains {
			t.Do(program.Operation{Kind: program.AddChain, Family: f, Table: probeTable, Name: c, Chain: &program.Chain{Name: c}})
		}
		needed = append(needed, sets...)
	}
	for id := range defs {
		if d := &defs[id]; slices.Contains(needed, d.Name) {
			t.Do(program.Operation{Kind: program.AddSet, Family: f, Table: probeTable, Name: d.Name, Set: d, ID: program.SetID(id)})
		}
	}
	if slices.ContainsFunc(rules, rule.Rule.AddsFlow) {
		t.Do(program.Operation{Kind: program.AddFlowtable, Family: f, Table: probeTable, Name: program.FastPathTable})
	}
	chain := &program.Chain{Name: name, Base: x.Base}
	t.Do(program.Operation{Kind: program.AddChain, Family: f, Table: probeTable, Name: name, Chain: chain})
	for _, r := range rules {
		t.Do(program.Operation{Kind: program.AddRule, Family: f, Table: probeTable, Name: name, Rule: r})
	}
}

// sendTrial sends a transaction that the kernel checks and then undoes: without its closing message, a batch is not committed. It
// returns what the kernel refused, and why; nil: it took everything.
func sendTrial(k NFTables, t *program.Transaction) error {
	var b Batch
	b.Start(t)
	if err := b.Operations(t.Before); err != nil {
		return err
	}
	b.Last = b.Seq
	b.requestAnswer()
	_, err := b.sendAlone(k, t)
	return err
}
