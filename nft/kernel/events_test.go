package kernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestEvents: an event says what a repair has to look at. "nft destroy" has events of its own.
func TestEvents(t *testing.T) {
	for _, x := range []struct {
		name     string
		kind     uint16
		second   string // the name of a set, where the event has one
		want     string
		replaced bool
	}{
		{"elements deleted", unix.NFT_MSG_DELSETELEM, program.Services.Name(), "elements of ip verdict services", false},
		{"elements destroyed", msgDestroySetElements, program.Services.Name(), "elements of ip verdict services", false},
		{"elements of a set of others", unix.NFT_MSG_NEWSETELEM, "__set0", "chains, rules or sets", false},
		{"a rule destroyed", msgDestroyRule, "", "chains, rules or sets", false},
		{"a chain destroyed", msgDestroyChain, "", "chains, rules or sets", false},
		{"a set of others", unix.NFT_MSG_NEWSET, "__set0", "chains, rules or sets", false},
		{"a set of the program", msgDestroySet, program.Services.Name(), "chains, rules or sets", true},
		{"our flowtable", unix.NFT_MSG_DELFLOWTABLE, program.FastPathTable, "chains, rules or sets", false},
		{"our flowtable destroyed", msgDestroyFlowtable, program.FastPathTable, "chains, rules or sets", false},
		{"a flowtable of others", unix.NFT_MSG_NEWFLOWTABLE, "theirs", "", false},
		{"a table", unix.NFT_MSG_DELTABLE, "", "chains, rules or sets", true},
		{"an event that is not known", 99, "", "chains, rules or sets", true},
	} {
		var w nlmsg.Writer
		w.Text(1, program.TableName)
		w.Text(2, x.second)
		var i Interference
		i.event(x.kind, program.IPv4, nlmsg.NewAttributes(w.Buf))
		if i.String() != x.want || i.Replaced != x.replaced {
			t.Errorf("%s: %s, replaced %t; want %s, %t", x.name, &i, i.Replaced, x.want, x.replaced)
		}
	}
}
