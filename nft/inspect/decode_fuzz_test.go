package inspect

import (
	"errors"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// strangeKernel has the sets of Verdict, with any elements.
type strangeKernel struct {
	kernel.Reader
	rest []byte
}

func (k *strangeKernel) Generation() (uint32, error) { return 1, nil }

func (k *strangeKernel) SurveyTable(program.Family) (kernel.Existing, error) {
	return kernel.Existing{Table: true, SameLayout: true}, nil
}

// take cuts a value of 0 to 31 bytes off the input.
func (k *strangeKernel) take() []byte {
	if len(k.rest) == 0 {
		return nil
	}
	n := min(int(k.rest[0]%32), len(k.rest)-1)
	value := k.rest[1 : 1+n]
	k.rest = k.rest[1+n:]
	return value
}

func (k *strangeKernel) element() kernel.Found {
	return kernel.Found{Key: k.take(), Data: k.take(), Comment: string(k.take())}
}

func (k *strangeKernel) DumpElements(_ program.Family, _ program.SetID, each func(kernel.Found)) error {
	for n := len(k.take()); n > 0 && len(k.rest) > 0; n-- {
		each(k.element())
	}
	return nil
}

func (k *strangeKernel) LookupRow(_ program.Family, _ program.SetID, keys [][]byte, each func(kernel.Found)) (int, error) {
	found := 0
	for ; found < len(keys) && len(k.rest) > 0; found++ {
		each(k.element())
	}
	return found, nil
}

func (k *strangeKernel) Lookup(program.Family, program.SetID, []byte) (kernel.Found, bool, error) {
	return k.element(), len(k.rest) > 0, nil
}

// FuzzList lists tables whose elements are any bytes, as another process can write them: nothing panics.
func FuzzList(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02\x00\x0c\x0a\x60\x00\x01\x06\x00\x00\x00\x00\x50\x00\x00\x04\x00\x00\x00\x02\x05a/b:c"))
	f.Fuzz(func(t *testing.T, elements []byte) {
		k := &strangeKernel{rest: elements}
		out, err := ListFrom(k, []program.Family{program.IPv4, program.IPv6}, nil)
		if err != nil && errors.Is(err, kernel.ErrNoTables) {
			t.Fatal(err)
		}
		if len(out.Frontends) > len(elements) {
			t.Fatalf("%d frontends from %d bytes", len(out.Frontends), len(elements))
		}
	})
}
