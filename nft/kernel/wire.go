package kernel

import (
	"strings"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Wire writes messages to nf_tables into one buffer that is used again for each batch. It exists because
// google/nftables allocates several objects for each element: BenchmarkEncode compares the two, TestWireEqualsLibrary
// checks that the bytes are the same.
type Wire struct{ nlmsg.Writer }

// begin starts a message to nf_tables and returns where it starts.
func (w *Wire) begin(kind uint16, flags uint16, f program.Family) int {
	return w.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, uint8(f), 0)
}

// comment writes user data that is nothing but a comment: one item of type 0 with its length, as nft and libnftnl do.
func (w *Wire) comment(kind uint16, value string) {
	w.Header(kind, len(value)+3)
	w.Buf = append(w.Buf, 0, byte(len(value)+1))
	w.Buf = append(w.Buf, value...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}

// findUserData is userdata.Get for bytes that any program may have written: the library reads past their end.
func findUserData(udata []byte, kind userdata.Type) []byte {
	for len(udata) >= 2 {
		end := 2 + int(udata[1])
		if end > len(udata) {
			return nil
		}
		if userdata.Type(udata[0]) == kind {
			return udata[2:end]
		}
		udata = udata[end:]
	}
	return nil
}

// readComment reads the comment of a table or an element; empty: it has none.
func readComment(udata []byte) string {
	return strings.TrimRight(string(findUserData(udata, userdata.TypeComment)), "\x00")
}

// tableUserData is NFTA_TABLE_USERDATA (kernel 5.10), which x/sys does not have.
const tableUserData = 6

// setExpr is NFTA_SET_EXPR (kernel 5.7), which x/sys does not have.
const setExpr = 17
