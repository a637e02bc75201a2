package prober

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// maxStale is how many answers to other questions are read.
const maxStale = 16

// askDNS asks for a name, which must have an answer without an error. Without a name, any answer shows that the server
// works.
func askDNS(conn io.ReadWriter, overTCP bool, c *state.HealthCheck) error {
	query, id, err := dnsQuery(c.Host)
	if err != nil {
		return err
	}
	buf := make([]byte, 1232)
	if overTCP {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := conn.Write(query); err != nil {
		return err
	}
	for range maxStale {
		n, err := readDNS(conn, buf, overTCP)
		if err != nil {
			return err
		}
		var p dnsmessage.Parser
		h, err := p.Start(buf[:n])
		switch {
		case err != nil || !h.Response:
			return answerError("the answer is not DNS")
		case h.ID != id:
			continue // to an earlier question
		case h.RCode == dnsmessage.RCodeSuccess || c.Host == "":
			return nil
		}
		return answerError("DNS answer " + strings.TrimPrefix(h.RCode.String(), "RCode"))
	}
	return answerError("the answers are to other questions")
}

// dnsQuery asks for the name, or for the name servers of the root.
func dnsQuery(name string) (query []byte, id uint16, err error) {
	var random [2]byte
	_, _ = rand.Read(random[:]) // never fails
	id = binary.BigEndian.Uint16(random[:])
	q := dnsmessage.Question{Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	if name == "" {
		q.Type = dnsmessage.TypeNS
	}
	if q.Name, err = dnsmessage.NewName(strings.TrimSuffix(name, ".") + "."); err != nil {
		return nil, 0, fmt.Errorf("write the question for %s: %w", name, err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: name != ""}, Questions: []dnsmessage.Question{q}}
	query, err = m.Pack()
	return query, id, err
}

func readDNS(conn io.ReadWriter, buf []byte, overTCP bool) (int, error) {
	if !overTCP {
		return conn.Read(buf)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:min(len(buf), int(binary.BigEndian.Uint16(size[:])))])
}
