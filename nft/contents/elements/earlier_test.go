package elements

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestRow: slots that nobody has written are gaps, and data of another length are no slots.
func TestRow(t *testing.T) {
	var r, gaps Row
	if r.Slots() != 0 || r.At(0) != nil {
		t.Errorf("an empty row: %d slots, %v", r.Slots(), r.At(0))
	}
	for _, data := range [][]byte{{1, 2}, {3}, {0, 4}} {
		r.Append(data)
	}
	if got := [][]byte{r.At(0), r.At(1), r.At(2)}; r.Slots() != 2 || !reflect.DeepEqual(got, [][]byte{{1, 2}, {0, 4}, nil}) {
		t.Errorf("appended: %d slots, %v", r.Slots(), got)
	}
	gaps.Put(2, []byte{7, 8})
	gaps.Put(0, []byte{5, 6})
	if got := [][]byte{gaps.At(0), gaps.At(1), gaps.At(2), gaps.At(3)}; gaps.Slots() != 3 || !reflect.DeepEqual(got, [][]byte{{5, 6}, nil, {7, 8}, nil}) {
		t.Errorf("with gaps: %d slots, %v", gaps.Slots(), got)
	}
}

func word(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// TestReadToken: an element of another form is no token.
func TestReadToken(t *testing.T) {
	v4, v6 := []byte{10, 0, 0, 1}, []byte{0xfd, 15: 1}
	for _, tt := range []struct {
		family    program.Family
		key, data []byte
		want      string
	}{
		{program.IPv4, word(7), append(v4, 0, 80), "10.0.0.1:80"},
		{program.IPv4, word(7), v4, "10.0.0.1:0"},
		{program.IPv4, word(7), v4[:3], ""},
		{program.IPv4, word(7)[:3], v4, ""},
		{program.IPv6, word(7), append(v6, 31, 144), "[fd00::1]:8080"},
		{program.IPv6, word(7), append(v4, 0, 80), ""},
	} {
		got, ok := ReadToken(tt.family, tt.key, tt.data, "ns/a:p")
		if ok != (tt.want != "") || ok && (got.token != 7 || got.name != "ns/a:p" || got.addr.String() != tt.want) {
			t.Errorf("%v %v: %+v, %t; want %q", tt.key, tt.data, got, ok, tt.want)
		}
	}
}

// TestReadEarlier: what an earlier process left in the maps gives each service port its number, name, slots and ordinals.
func TestReadEarlier(t *testing.T) {
	im := NewImage()
	endpoint := func(last byte) []byte { return []byte{10, 0, 0, last, 0, 80} }
	pool := func(number uint32, name string, class program.Class, slots ...[]byte) {
		id := uint32(len(im.Classes) + 1)
		im.Names[number], im.ClassOf[number], im.Classes[id] = name, id, class
		if im.Rows[class.Slots()] == nil {
			im.Rows[class.Slots()] = map[uint32]Row{}
		}
		row := Row{}
		for slot, data := range slots {
			row.Put(uint32(slot), data)
		}
		im.Rows[class.Slots()][number] = row
	}
	plain, sticky := program.NewClass(program.Random, 2, 0, false), program.NewClass(program.Random, 2, 1e9, false)
	token := func(number, n uint32) uint32 { return number<<1 | n<<program.PoolBits }
	pool(2, "ns/a:p", plain, endpoint(2), endpoint(1))
	pool(3, "ns/a:p"+program.LocalSuffix, plain, endpoint(2))
	pool(5, "ns/local:p"+program.LocalSuffix, plain, endpoint(3), []byte{0, 0, 0, 0, 0, 0})
	pool(6, "ns/sticky:p", sticky, word(token(3, 9)), word(token(3, 4)), word(token(3, 9)))
	pool(8, "ns/lost:p", sticky, word(token(4, 1)), word(token(4, 2)))
	samePort := plain
	samePort.SamePort = true
	pool(10, "ns/range:p", samePort, []byte{10, 0, 0, 8}, []byte{10, 0, 0, 7})
	tokens := []EarlierToken{
		{token(3, 9), netip.MustParseAddrPort("10.0.0.9:80"), "ns/sticky:p"}, {token(3, 4), netip.MustParseAddrPort("10.0.0.4:80"), "ns/sticky:p"},
		{token(4, 1), netip.MustParseAddrPort("10.0.0.1:80"), "ns/lost:p"},
	}
	got := readEarlier(program.IPv4, im, tokens)
	for _, tt := range []struct {
		number   uint32
		name     string
		pools    [2]string
		last     uint32
		affinity bool
	}{
		{1, "ns/a:p", [2]string{"10.0.0.1:80/1 10.0.0.2:80/0", "10.0.0.2:80/0"}, 0, false},
		{2, "ns/local:p", [2]string{"", ""}, 0, false}, // a slot is a gap
		{3, "ns/sticky:p", [2]string{"10.0.0.4:80/1 10.0.0.9:80/0 10.0.0.9:80/2", ""}, 9, true},
		{5, "ns/range:p", [2]string{"10.0.0.7:0/1 10.0.0.8:0/0", ""}, 0, false},
		{4, "ns/lost:p", [2]string{"", ""}, 1, true}, // a slot has a token that nobody knows
	} {
		p := got[tt.number]
		if p == nil || p.name != tt.name || p.number != tt.number || p.ordinals.last != tt.last {
			t.Errorf("number %d: %+v", tt.number, p)
			continue
		}
		for i, want := range tt.pools {
			text := ""
			members, order := p.members(i)
			for _, slot := range order {
				text += fmt.Sprintf("%s/%d ", members[slot], slot)
			}
			if text = strings.TrimSpace(text); text != want {
				t.Errorf("%s, pool %d: %q, want %q", tt.name, i, text, want)
			}
		}
		if have := (earlierPorts{tt.name: p}).haveAffinity(); have != tt.affinity {
			t.Errorf("%s: affinity %t", tt.name, have)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d service ports", len(got))
	}
	if list := readEarlier(program.IPv4, nil, tokens); len(list) != 2 {
		t.Errorf("without an image: %d service ports", len(list))
	}
}

// TestKeepEarlier: a service port gets its number and ordinals back, unless several ones had its name.
func TestKeepEarlier(t *testing.T) {
	token := func(number, n uint32, addr, name string) EarlierToken {
		return EarlierToken{number<<1 | n<<program.PoolBits, netip.MustParseAddrPort(addr), name}
	}
	s := newServicePorts(program.IPv4, ledger.New(program.IPv4, comment))
	s.keepEarlier(readEarlier(program.IPv4, nil, []EarlierToken{
		token(3, 9, "10.0.0.9:80", "ns/a:p"), token(3, 4, "10.0.0.4:80", "ns/a:p"), token(3, 6, "10.0.0.6:80", "ns/a:p"),
		token(5, 1, "10.0.0.1:80", "ns/both:p"), token(6, 1, "10.0.0.1:80", "ns/both:p"),
	}))
	a, both := s.get("ns/a:p", 6), s.get("ns/both:p", 6)
	for last, want := range map[int]uint32{4: 4, 6: 6, 9: 9} {
		at := fmt.Sprintf("10.0.0.%d:80", last)
		if !slices.Contains(a.ordinals.list, ordinal{addr: netip.MustParseAddrPort(at), n: want}) {
			t.Errorf("%s has another ordinal: %+v", at, a.ordinals.list)
		}
	}
	if a.number != 3 || both.number != 7 || len(both.ordinals.list) > 0 {
		t.Errorf("numbers %d and %d, ordinals of the latter: %v", a.number, both.number, both.ordinals.list)
	}
}
