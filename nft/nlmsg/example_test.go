package nlmsg_test

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// A request that asks nf_tables for a table, read back.
func Example() {
	const (
		getTable  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE
		tableName = unix.NFTA_TABLE_NAME
	)
	var w nlmsg.Writer
	request := w.Begin(getTable, unix.NLM_F_ACK, unix.NFPROTO_IPV4, 0)
	w.Text(tableName, "verdict")
	w.End(request)

	m := nlmsg.NewMessages(w.Buf)
	for m.Next() {
		fmt.Printf("message %#x, number %d, %d bytes\n", m.Kind, m.Seq, len(m.Body))
		for a := m.Attributes(); a.Next(); {
			fmt.Printf("attribute %d: %q\n", a.Kind, a.Text())
		}
	}
	if err := m.Err(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// message 0xa01, number 1, 16 bytes
	// attribute 1: "verdict"
}
