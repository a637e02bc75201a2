package nft

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestWireEqualsLibrary encodes all elements of the examples with this package and with google/nftables, as additions and as
// deletions. The library does not know the set IDs of other messages, and writes names in another order. So the test
// compares messages by table and set, and the bytes of each element.
func TestWireEqualsLibrary(t *testing.T) {
	for _, x := range examples() {
		for _, deletion := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/deletion=%t", x.name, deletion), func(t *testing.T) {
				tx := elementsOf(t, x, deletion)
				var b kernel.Batch
				if err := b.Encode(tx); err != nil {
					t.Fatal(err)
				}
				ours, library := wireElements{}, wireElements{}
				for m := nlmsg.NewMessages(b.Buf); m.Next(); {
					ours.read(t, m.Kind, m.Body)
				}
				for _, m := range libraryMessages(t, tx, deletion) {
					library.read(t, uint16(m.Header.Type), m.Data)
				}
				if len(library) == 0 {
					t.Fatal("nothing to compare")
				}
				if diff := cmp.Diff(library, ours); diff != "" {
					t.Fatalf("(- library, + ours):\n%s", diff)
				}
			})
		}
	}
}

// elementsOf is a transaction with only the elements of an example.
func elementsOf(t testing.TB, x example, deletion bool) *program.Transaction {
	t.Helper()
	e := newEngine(nil, Options{})
	e.SetGlobals(x.globals)
	mustSet(t, e, x.ports...)
	tx := &program.Transaction{}
	for _, tb := range e.tables {
		tb.Build(tx.For(tb.Family), kernel.Existing{})
		for id := range tb.Defs {
			if c := &tx.Changes[tb.Family.Index()][id]; deletion {
				c.Delete, c.Add = c.Add, nil
			}
		}
	}
	tx.Before = nil
	return tx
}

// wireElements are the bytes of elements by kind of message, family, table and set.
type wireElements map[string][]string

func (w wireElements) read(t testing.TB, kind uint16, message []byte) {
	t.Helper()
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return // the message that opens or closes the batch
	}
	table, set := "", ""
	var elements []string
	for a := range attributes(t, message[4:]) {
		switch a.Type &^ unix.NLA_F_NESTED {
		case unix.NFTA_SET_ELEM_LIST_TABLE:
			table = string(a.Data)
		case unix.NFTA_SET_ELEM_LIST_SET:
			set = string(a.Data)
		case unix.NFTA_SET_ELEM_LIST_ELEMENTS:
			for e := range attributes(t, a.Data) {
				elements = append(elements, fmt.Sprintf("%x", e.Data))
			}
		}
	}
	where := fmt.Sprintf("message %d family %d %q %q", kind&0xff, message[0], table, set)
	w[where] = append(w[where], elements...)
}

func attributes(t testing.TB, b []byte) func(func(netlink.Attribute) bool) {
	t.Helper()
	list, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(netlink.Attribute) bool) {
		for _, a := range list {
			if !yield(a) {
				return
			}
		}
	}
}

func libraryMessages(t testing.TB, tx *program.Transaction, deletion bool) []netlink.Message {
	t.Helper()
	var sent []netlink.Message
	c, err := nftables.New(nftables.WithTestDial(func(request []netlink.Message) ([]netlink.Message, error) {
		sent = append(sent, request...)
		return nil, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range program.Families() {
		for id, d := range (program.Program{Family: f}.Sets()) {
			changes := tx.Changes[f.Index()][id]
			add, list := c.SetAddElements, changes.Add
			if deletion {
				add, list = c.SetDeleteElements, changes.Delete
			}
			if err := add(librarySet(f, d), libraryElements(tx, program.SetID(id), list, deletion)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range sent {
		clearNested(sent[i].Data)
	}
	return sent
}

// clearNested corrects a harmless error of the library: it marks the flags of the end of a range as nested attributes,
// although they are a number.
func clearNested(message []byte) {
	wrong := binary.NativeEndian.AppendUint16([]byte{8, 0}, unix.NFTA_SET_ELEM_FLAGS|unix.NLA_F_NESTED)
	for i := 0; i+8 <= len(message); i += 4 {
		if slices.Equal(message[i:i+4], wrong) && binary.BigEndian.Uint32(message[i+4:]) == unix.NFT_SET_ELEM_INTERVAL_END {
			binary.NativeEndian.PutUint16(message[i+2:], unix.NFTA_SET_ELEM_FLAGS)
		}
	}
}

func librarySet(f program.Family, d program.Set) *nftables.Set {
	return &nftables.Set{
		Table: &nftables.Table{Name: program.TableName, Family: nftables.TableFamily(f)}, Name: d.Name,
		IsMap: d.IsMap(), Interval: d.Interval || d.Ports, Concatenation: d.Ports,
	}
}

func libraryElements(tx *program.Transaction, id program.SetID, list []program.Element, deletion bool) []nftables.SetElement {
	var out []nftables.SetElement
	for _, e := range list {
		l := nftables.SetElement{Key: e.Key(tx.Arena), IntervalEnd: e.IntervalEnd}
		if id.HasPorts() {
			l.Key, l.KeyEnd = l.Key[:len(l.Key)/2], l.Key[len(l.Key)/2:]
		}
		switch {
		case deletion: // needs only a key
		case id == program.Dispatch:
			l.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Label}
		default:
			l.Val, l.Comment = e.Data(tx.Arena), e.Label
		}
		out = append(out, l)
	}
	return out
}

// BenchmarkEncode compares the cost of encoding 1,000 elements.
func BenchmarkEncode(b *testing.B) {
	tx := &program.Transaction{}
	for i := range uint32(1000) {
		tx.For(program.IPv4).Insert(program.Services, tx.Element("some-namespace/some-service:http",
			func(k *program.Builder) { k.Word(i); k.Proto(tcp); k.Port(80) }, func(v *program.Builder) { v.Word(i) }))
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		var ours kernel.Batch
		for b.Loop() {
			if err := ours.Encode(tx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(ours.Buf)), "bytes")
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		set := librarySet(program.IPv4, program.Program{Family: program.IPv4}.Sets()[program.Services])
		elements := libraryElements(tx, program.Services, tx.Changes[0][program.Services].Add, false)
		for b.Loop() {
			if err := (&nftables.Conn{}).SetAddElements(set, elements); err != nil {
				b.Fatal(err)
			}
		}
	})
}
