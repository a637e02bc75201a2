package conntrack

import (
	"testing"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// FuzzEntry reads any bytes as an entry of the kernel's table: nothing panics, and the key, which is sent back to the
// kernel, is made of attributes of the entry.
func FuzzEntry(f *testing.F) {
	f.Add([]byte("\x14\x00\x01\x80\x08\x00\x01\x00\x0a\x00\x00\x01\x08\x00\x02\x00\x0a\x60\x00\x01"))
	f.Add([]byte("\x08\x00\x03\x00\x00\x00\x00\x20\x06\x00\x12\x00\x00\x07\x00\x00"))
	f.Fuzz(func(t *testing.T, attributes []byte) {
		var e entry
		for range 2 { // the second time in the memory of the first
			ok := e.parse(nlmsg.NewAttributes(attributes))
			if len(e.key) > len(attributes) {
				t.Fatalf("a key of %d bytes from %d", len(e.key), len(attributes))
			}
			if ok && (!e.Dst.IsValid() || !e.Reply.IsValid()) {
				t.Fatalf("an entry without addresses: %+v", e)
			}
		}
	})
}
