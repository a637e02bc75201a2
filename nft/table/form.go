package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// form is what the table consists of besides elements: sets, chains and rules.
type form struct {
	Family   program.Family
	Defs     [program.SetCount]program.Set
	compiled compiled
}

// compiled is what is made of a program, to be made only once.
type compiled struct {
	of     program.Program
	shapes map[string]rule.RulesShape // by chain

	printed     program.Program // without lengths
	fingerprint string
}

// maxShapes bounds what is remembered of chains, because those of classes come and go.
const maxShapes = 4096

// rules are what the rules of a wanted chain say. The rules of a program never change, and to encode them takes
// milliseconds.
func (c *compiled) rules(p program.Program, chain *program.Chain) rule.RulesShape {
	if c.of != p || c.shapes == nil || len(c.shapes) == maxShapes {
		c.of, c.shapes = p, map[string]rule.RulesShape{}
	}
	s, known := c.shapes[chain.Name]
	if !known {
		s = rule.RulesOf(p.Family, chain.Rules)
		c.shapes[chain.Name] = s
	}
	return s
}

// fingerprintOf names the rules and sets of a table, apart from elements and from which classes and groups of prefix lengths
// there are, and the options of the program. It tells a reader of the listing whether two nodes, or two versions, run the
// same program.
func (c *compiled) fingerprintOf(p program.Program, defs []program.Set) string {
	p.Lengths = 0
	if c.fingerprint == "" || c.printed != p {
		c.printed, c.fingerprint = p, p.Fingerprint(defs)
	}
	return c.fingerprint
}

// chainDifference is how the chains of a table differ from the wanted ones.
type chainDifference struct {
	wanted  map[string]program.Chain
	wrong   []program.Chain // missing, or not as they should be
	foreign []string
}

func (d *chainDifference) empty() bool { return len(d.wrong)+len(d.foreign) == 0 }

// compareChains compares the chains that the kernel has with those of a program. The rules of a chain that looks up a set
// that cannot stay are wrong as well.
func (fm *form) compareChains(was kernel.Existing, p program.Program, wanted map[string]program.Chain) chainDifference {
	d, allSets := chainDifference{wanted: wanted}, fm.hasSets(was)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		c := wanted[name]
		if !fm.hasChain(was, p, &c) || name == program.FastPathChain && !hasFlowtable(was, p) || !allSets && fm.usesLostSet(&c, was) {
			d.wrong = append(d.wrong, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Chains)) {
		if _, ok := wanted[name]; !ok {
			d.foreign = append(d.foreign, name)
		}
	}
	return d
}

// hasChain reports whether a chain exists with its rules and its policy.
func (fm *form) hasChain(was kernel.Existing, p program.Program, c *program.Chain) bool {
	is, ok := was.Chains[c.Name]
	return ok && is == c.Shape() && !was.Dropping[c.Name] && was.Rules[c.Name] == fm.compiled.rules(p, c)
}

// usesLostSet reports whether a rule of the chain looks up a set that cannot stay.
func (fm *form) usesLostSet(c *program.Chain, found kernel.Existing) bool {
	lost := func(set string) bool {
		return slices.ContainsFunc(fm.Defs[:], func(d program.Set) bool { return d.Name == set && !found.HasSet(&d) })
	}
	return slices.ContainsFunc(c.Rules, func(r rule.Rule) bool {
		sets, _ := r.References()
		return slices.ContainsFunc(sets, lost)
	})
}

// clear takes the rules out of chains that change or leave, because these may refer to sets and to each other. It deletes
// the chains that leave, and those that change their shape. Chains that leave are deleted last, because the map dispatch
// refers to them until then.
func (d *chainDifference) clear(w program.Writer, found kernel.Existing) {
	for _, name := range slices.Sorted(maps.Keys(found.Chains)) {
		c, wanted := d.wanted[name]
		leaves := slices.Contains(d.foreign, name)
		if leaves || slices.ContainsFunc(d.wrong, func(c program.Chain) bool { return c.Name == name }) {
			w.Do(program.Operation{Kind: program.FlushRules, Name: name})
		}
		if leaves {
			w.DoAfterwards(program.Operation{Kind: program.DeleteChain, Name: name})
		} else if wanted && c.Shape() != found.Chains[name] {
			w.Do(program.Operation{Kind: program.DeleteChain, Name: name})
		}
	}
}

// hasSets reports whether the kernel has all sets, in the form of the program.
func (fm *form) hasSets(was kernel.Existing) bool {
	return !slices.ContainsFunc(fm.Defs[:], func(d program.Set) bool { return !was.HasSet(&d) })
}

// hasFlowtable reports whether the kernel has the flowtable, if the program has it. Others may have flowtables of other names.
func hasFlowtable(was kernel.Existing, p program.Program) bool {
	is, found := was.Flowtables[program.FastPathTable]
	return found == (p.FastPath > 0) && (!found || is.Flowtable == program.OurFlowtable())
}

// replaceFlowtable deletes a flowtable that cannot stay, once no rule uses it, and adds one that is missing. It reports whether it did.
func replaceFlowtable(w program.Writer, found kernel.Existing, p program.Program) bool {
	if hasFlowtable(found, p) {
		return false
	}
	if _, there := found.Flowtables[program.FastPathTable]; there {
		w.Do(program.Operation{Kind: program.DeleteFlowtable, Name: program.FastPathTable})
	}
	if p.FastPath > 0 {
		w.Do(program.Operation{Kind: program.AddFlowtable, Name: program.FastPathTable})
	}
	return true
}

// addSets adds the sets that are not there, and tunes those that others have tuned.
func (fm *form) addSets(w program.Writer, keep bool, found kernel.Existing) {
	for id := range fm.Defs {
		if d := &fm.Defs[id]; !keep || !found.HasSet(d) || found.Retuned(d) {
			w.Do(program.Operation{Kind: program.AddSet, Name: d.Name, Set: d, ID: program.SetID(id)})
		}
	}
}

// dropSets deletes the sets that cannot stay, and empties some that can.
func (fm *form) dropSets(w program.Writer, found kernel.Existing, empty func(*program.Set) bool) {
	wanted := map[string]*program.Set{}
	for id := range fm.Defs {
		wanted[fm.Defs[id].Name] = &fm.Defs[id]
	}
	for _, name := range slices.Sorted(maps.Keys(found.Sets)) {
		d, mapping := wanted[name], found.Sets[name].Flags&unix.NFT_SET_MAP != 0
		stays := d != nil && found.HasSet(d)
		if !stays || empty(d) {
			// A map is emptied before it is deleted, too: its elements keep chains in use, and before kernel 6.4 the
			// deletion of a map does not release them.
			w.Do(program.Operation{Kind: program.FlushSet, Name: name, Mapping: mapping})
		}
		if !stays {
			w.Do(program.Operation{Kind: program.DeleteSet, Name: name, Mapping: mapping})
		}
	}
}

// canBeRead reports whether the sets of an image are there, in the form that this program has.
func (fm *form) canBeRead(was kernel.Existing) bool {
	if !was.Table || !was.SameLayout {
		return false
	}
	for _, id := range []program.SetID{program.Endpoints, program.StickySlots, program.Pools, program.Dispatch, program.HashTables, program.Generation} {
		if !was.HasSet(&fm.Defs[id]) {
			return false
		}
	}
	return true
}

// HasGuards reports whether the kernel's table has the set of guarded addresses, and the rules that look it up. A chain
// with fewer rules than the smallest program has was flushed, or is from an earlier version without IPVS.
func (fm *form) HasGuards(k kernel.NFTables) (bool, error) {
	was, err := k.Survey(fm.Family)
	if err != nil {
		return false, fmt.Errorf("read table %s %s: %w", fm.Family, program.TableName, err)
	}
	_, hooked := was.Chains["filter-input"] // a new table gets it last
	reads := was.Rules[program.UnservedChain].Count >= len(program.Program{Family: fm.Family}.Unserved())
	return hooked && reads && was.HasSet(&fm.Defs[program.IPVSAddresses]), nil
}

// formerProgram returns the program that an earlier process wrote. It is known if it is one of this version, and all sets
// are there.
func (fm *form) formerProgram(k kernel.NFTables, was kernel.Existing) (p program.Program, known bool, err error) {
	if !fm.hasSets(was) {
		return p, false, nil
	}
	p, err = kernel.Identify(k, fm.Family)
	p.Lengths = was.Lengths(fm.Family)
	if errors.Is(err, kernel.ErrUnknownProgram) {
		return p, false, nil
	}
	return p, err == nil, err
}

// slotSets are the maps whose key is a pool or hash table and a slot. A row of slots has no gaps.
func slotSets() []program.SetID {
	return []program.SetID{program.Endpoints, program.StickySlots, program.Addresses, program.HashSlots}
}
