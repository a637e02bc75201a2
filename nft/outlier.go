package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The kernel notices endpoints that do not answer. A client repeats its first packet after a second. At that time,
// connection tracking has confirmed the connection, but has seen no reply, so the packet is still "new". Only such
// packets reach the set "unanswered". The set "refusing" has the endpoints that refuse connections (see
// heldback.go); its rules look at every packet that is not of an assured connection, so they are there only on request.
//
// An element is an endpoint, and not a client: forged source addresses make no further elements. Elements live for
// suspectTimeout, and the sets are bounded. When a set is full, further endpoints are not noticed until others have
// timed out; connections are not affected.

// Readers poll: nf_tables sends events only for what a transaction changes, and none for elements that packets add
// (TestNobodyTellsOfSuspects). BenchmarkReadSuspects says what a look costs.

// suspectTimeout is how long an element stays. Readers poll several times a second.
const suspectTimeout = 5 * time.Second

// SuspectLimit is the size of each of the sets.
const SuspectLimit = 16384

func suspectSet(addr dataType) setDef {
	return setDef{key: []dataType{addr, typeService}, dynamic: true, counter: true, size: SuspectLimit}
}

const newConnectionsChain = "new-connections"

// newConnections sees the first packet of each connection, and its repetitions.
//
// A packet of this node to itself comes twice. Connection tracking has confirmed it between the hooks output and input, so
// at input the first one looks like a repetition. Repetitions are noticed at output.
func (p program) newConnections() chainDef {
	rules := []rule{{isTranslated(), isRepeated(), interfaceName("lo", true), tcpOnly(),
		p.suspect(setUnanswered, key{p.daddr(), tcpDport()})}}
	if p.ipvs {
		// IPVS does not set the status dnat. At the hook input, the packet still has the address of the frontend.
		suspect := []statement{notToThisNode(), tcpOnly(), p.suspect(setUnanswered, key{p.daddr(), tcpDport()})}
		for _, set := range []string{setIPVSAddresses, setNodePortAddresses} {
			rules = append(rules, append(rule{isNotTranslated(), isRepeated(), in(set, p.originalDaddr())}, suspect...))
		}
	}
	return chainDef{name: newConnectionsChain, rules: append(rules, rule{isNotTranslated(), jump(unservedChain)})}
}

// lateErrors drops what this node itself tells the clients of connections that were deleted. The first packets of clients
// wait while the kernel asks for the neighbor's address. When it gives up after 3 seconds, it sends "host unreachable" for
// each of them. The error keeps the connection of the packet, so it finds the client although the connection was deleted,
// and the client would give up before its next packet reaches another endpoint. Connections that IPVS carries are those to
// its addresses and to node ports that are not translated.
func (p program) lateErrors() []rule {
	rules := []rule{{isRelated(), isTranslated(), isDeleted(), drop()}}
	if p.ipvs {
		rules = append(rules,
			rule{isRelated(), isDeleted(), in(setIPVSAddresses, p.originalDaddr()), drop()},
			rule{isRelated(), isDeleted(), in(setNodePortAddresses, p.originalDaddr()), drop()})
	}
	return rules
}

// These are bits of the kernel's enum ip_conntrack_status.
const (
	statusAssured   = 0x4
	statusConfirmed = 0x8
	statusDying     = 0x200
)

// isRelated matches errors about a connection.
func isRelated() statement {
	return compare("ct state related", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATE},
		native(expr.CtStateBitRELATED), expr.CmpOpNeq, native(0))
}

// isDeleted matches packets whose connection has been deleted since they belong to it.
func isDeleted() statement {
	return compare("ct status & dying == dying", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATUS},
		native(statusDying), expr.CmpOpEq, native(statusDying))
}

// isRepeated matches packets of connections that an earlier packet began.
func isRepeated() statement {
	return compare("ct status & confirmed == confirmed", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATUS},
		native(statusConfirmed), expr.CmpOpEq, native(statusConfirmed))
}

func isNotAssured() statement {
	return compare("ct status & assured == 0", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATUS},
		native(statusAssured), expr.CmpOpEq, native(0))
}

// isReply matches packets from the endpoint to the client.
func isReply() statement {
	return compare("ct direction reply", &expr.Ct{Register: firstRegister, Key: expr.CtKeyDIRECTION},
		nil, expr.CmpOpEq, []byte{1}) // IP_CT_DIR_REPLY
}

// isReset matches TCP packets that refuse a connection. A reset has the flag ACK if it answers a first packet, which has none
// itself (RFC 9293, 3.10.7.1). One without the flag answers a packet of a connection that the endpoint does not know.
func isReset() statement {
	const flagsOffset, flags = 13, 0x4 | 0x10
	return compare("tcp flags & (rst | ack) == rst | ack",
		&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		[]byte{flags}, expr.CmpOpEq, []byte{flags})
}

// notToThisNode matches packets that leave for another host or for a pod.
func notToThisNode() statement {
	return compare("fib daddr type != local",
		&expr.Fib{Register: firstRegister, FlagDADDR: true, ResultADDRTYPE: true},
		nil, expr.CmpOpNeq, native(unix.RTN_LOCAL))
}

// suspect adds an endpoint to a set, and counts the packet there. The rule has made sure that the connection is of TCP.
func (p program) suspect(set string, endpoint key) statement {
	return addTo(set, endpoint, suspectTimeout)
}

// tcpOnly matches TCP packets. nft does not list it before a field of TCP, which implies it.
func tcpOnly() statement { return statement{exprs: isProtocol(unix.IPPROTO_TCP).exprs} }

// Suspect is an endpoint that the kernel noticed within the latest seconds.
type Suspect struct {
	Endpoint netip.AddrPort
	// Refusing: the endpoint answered with resets. Otherwise it did not answer.
	Refusing bool
	// Packets counts its repeated packets, or its resets, since the element was made.
	Packets uint64
}

// SuspectReader reads the endpoints that the kernel noticed. It has a socket of its own: a goroutine may read while
// another one uses the engine.
type SuspectReader struct {
	conn     *conn
	families []Family
}

// OpenSuspects connects to the kernel.
func OpenSuspects(o Options) (*SuspectReader, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	if len(o.Families) == 0 {
		both := Families()
		o.Families = both[:]
	}
	return &SuspectReader{conn: c, families: o.Families}, nil
}

// Close closes the socket.
func (r *SuspectReader) Close() error { return r.conn.close() }

// Read returns the endpoints that the sets have now. Sets that do not exist are empty. Refusing tells whether to read
// the set of refusing endpoints, too.
func (r *SuspectReader) Read(refusing bool) (list []Suspect, err error) {
	for _, f := range r.families {
		if list, err = r.read(list, f, setUnanswered, false); err == nil && refusing {
			list, err = r.read(list, f, setRefusing, true)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (r *SuspectReader) read(list []Suspect, f Family, set string, refusing bool) ([]Suspect, error) {
	err := r.conn.dumpElements(f, set, func(e foundElement) {
		if len(e.key) < f.addrLen()+typeService.bytes {
			return
		}
		addr, _ := netip.AddrFromSlice(e.key[:f.addrLen()])
		endpoint := netip.AddrPortFrom(addr, binary.BigEndian.Uint16(e.key[f.addrLen():]))
		list = append(list, Suspect{Endpoint: endpoint, Packets: e.packets, Refusing: refusing})
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("read set %s of table %s %s: %w", set, f, TableName, err)
	}
	return list, err
}
