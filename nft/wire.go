package nft

import (
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// wire writes messages to nf_tables into one buffer that is used again for each batch. It exists because
// google/nftables allocates several objects for each element: BenchmarkEncode compares the two, TestWireEqualsLibrary
// checks that the bytes are the same.
type wire struct{ nlmsg.Writer }

// begin starts a message to nf_tables and returns where it starts.
func (w *wire) begin(kind uint16, flags uint16, f Family) int {
	return w.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, uint8(f), 0)
}

// comment writes user data that is nothing but a comment: one item of type 0 with its length, as nft and libnftnl do.
func (w *wire) comment(kind uint16, value string) {
	w.Header(kind, len(value)+3)
	w.Buf = append(w.Buf, 0, byte(len(value)+1))
	w.Buf = append(w.Buf, value...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}
