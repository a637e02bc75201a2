package rule

import (
	"bytes"
	"testing"

	"github.com/google/nftables/expr"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// TestSetOfProtocols: a rule names the anonymous set by its number in the batch. The digest does not depend on that number.
func TestSetOfProtocols(t *testing.T) {
	encode := func(set uint32) (digest uint64, all []byte) {
		digest, err := Rule{{Exprs: protocolsLookup()}}.Encode(serviceport.IPv4, set, func(body []byte) { all = append(all, body...) })
		if err != nil {
			t.Fatal(err)
		}
		return digest, all
	}
	one, first := encode(0x01020304)
	other, second := encode(0x05060708)
	if one != other {
		t.Errorf("digests %x and %x", one, other)
	}
	if !bytes.Contains(first, []byte{1, 2, 3, 4}) || !bytes.Contains(second, []byte{5, 6, 7, 8}) {
		t.Errorf("the rules name other sets:\n%x\n%x", first, second)
	}
	if !bytes.Contains(first, []byte(ProtocolsSet)) { // the kernel wants a name besides
		t.Errorf("the rule has no name of the set:\n%x", first)
	}
}

// TestToLoopback: the statement compares one byte, the first one of the destination (RFC 791, section 3.1).
func TestToLoopback(t *testing.T) {
	list := Rule{ToLoopback()}.Exprs()
	load, isLoad := list[0].(*expr.Payload)
	compare, isCompare := list[1].(*expr.Cmp)
	if !isLoad || !isCompare || len(list) != 2 {
		t.Fatalf("%#v", list)
	}
	if load.Base != expr.PayloadBaseNetworkHeader || load.Offset != 16 || load.Len != 1 || compare.Op != expr.CmpOpEq || !bytes.Equal(compare.Data, []byte{127}) {
		t.Errorf("%+v, %+v", load, compare)
	}
}

// TestKeys: each field of a key has registers of its own, as the kernel compares them with the key of an element.
func TestKeys(t *testing.T) {
	for _, test := range []struct {
		field     Field
		registers uint32
	}{
		{Saddr(serviceport.IPv4), 1}, {Saddr(serviceport.IPv6), 4}, {SaddrPrefix(serviceport.IPv4, 8), 1}, {SaddrPrefix(serviceport.IPv6, 56), 4},
		{OriginalDaddr(serviceport.IPv6), 4}, {OriginalDport(), 1}, {SourceHash(serviceport.IPv4, 3, HashRegister), 1}, {IIFName(), 4},
	} {
		list := Key{test.field, L4Proto()}.load()
		last, isMeta := list[len(list)-1].(*expr.Meta)
		if want := FirstRegister + test.registers; !isMeta || last.Register != want {
			t.Errorf("after %s, the protocol is loaded by %+v, want register %d", test.field.text, list[len(list)-1], want)
		}
	}
}
