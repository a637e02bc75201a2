package memkernel

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// changeFlowtable refuses to delete a flowtable that a rule uses, as the kernel does. Any device exists.
func (k *NFTables) changeFlowtable(tb *table, o *program.Operation) unix.Errno {
	switch {
	case len(o.Devices) == 0 && o.Kind == program.AddFlowtable:
		assign(k, &tb.flowtable, &kernel.FoundFlowtable{Flowtable: program.OurFlowtable()})
		return 0
	case tb.flowtable == nil:
		return unix.ENOENT
	case len(o.Devices) == 0:
		for _, c := range tb.chains {
			if slices.ContainsFunc(c.rules, rule.Rule.AddsFlow) {
				return unix.EBUSY
			}
		}
		assign(k, &tb.flowtable, nil)
		return 0
	}
	devices := slices.DeleteFunc(slices.Clone(tb.flowtable.Devices), func(d string) bool { return slices.Contains(o.Devices, d) })
	if o.Kind == program.AddFlowtable {
		devices = append(devices, o.Devices...)
	}
	assign(k, &tb.flowtable, &kernel.FoundFlowtable{Flowtable: tb.flowtable.Flowtable, Devices: devices})
	return 0
}

// Flowtables are those of our table, by name.
func (k *NFTables) Flowtables(f program.Family) (map[string]kernel.FoundFlowtable, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := map[string]kernel.FoundFlowtable{}
	if tb := k.tables[f.Index()]; tb != nil && tb.flowtable != nil {
		list[program.FastPathTable] = *tb.flowtable
	}
	return list, nil
}
