package nft

import (
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/table"
)

// render prints both tables from the engine's ledger.
func (e *Engine) render() string {
	t := &program.Transaction{}
	for _, tb := range e.tables {
		w, all := t.For(tb.Family), everything(tb) // unlike Build, it keeps hash tables that are about to leave
		w.Do(program.Operation{Kind: program.AddTable})
		for id := range tb.Defs {
			w.Do(program.Operation{Kind: program.AddSet, Name: tb.Defs[id].Name, Set: &tb.Defs[id], ID: program.SetID(id)})
		}
		tb.Want.Chains.Rewrite(w, tb.Want.Program())
		for id := range program.SetCount {
			for _, e := range all.Changes[tb.Family.Index()][id].Add {
				if id != program.Generation {
					copyElement(w, id, e, all.Arena)
				}
			}
		}
	}
	return t.Listing()
}

// copyElement adds an element of another transaction.
func copyElement(w program.Writer, id program.SetID, e program.Element, arena []byte) {
	from := e.Offset
	e.Offset = w.Mark()
	w.Arena = append(w.Arena, arena[from:from+uint32(e.KeyLen)+uint32(e.DataLen)]...)
	w.Insert(id, e)
}

// everything has all elements that a table is to have, without the stamp.
func everything(tb *table.Table) program.Writer {
	w := program.NewWriter(tb.Family)
	tb.Want.Each((*ledger.Account).Wanted, func(a *ledger.Account, r *ledger.Record) {
		w.Insert(r.Set, ledger.Element(w, tb.Want.Comment(a, r), r))
	})
	return w
}
