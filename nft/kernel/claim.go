package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// claimGroup is a group of NFLOG that nothing logs to. The kernel gives each group of a network namespace to one socket,
// asks for CAP_NET_ADMIN, and takes the group back when the process ends for any reason: a lock that belongs to the
// namespace, wherever the files of a process are, and that only those who may write the tables can hold.
const claimGroup = 0x5644

// ErrClaimed means that another process has the claim.
var ErrClaimed = errors.New("another process has the claim")

// Claim is held by at most one process in each network namespace. The zero value holds nothing.
type Claim struct{ conn *Conn }

// ClaimNamespace takes the claim of a network namespace. The error is ErrClaimed if another process has it, and
// errors.ErrUnsupported if the kernel has no NFLOG.
func ClaimNamespace(o Options) (Claim, error) {
	c, err := Dial(o.NetNS)
	if err != nil {
		return Claim{}, err
	}
	claim := Claim{c}
	if err := claim.take(); err != nil {
		return Claim{}, errors.Join(err, c.Close())
	}
	return claim, nil
}

func (c Claim) take() error {
	const bind, unbind = 1, 2 // NFULNL_CFG_CMD_BIND and _UNBIND
	refusal, err := c.configureLog(bind, claimGroup)
	if errors.Is(refusal, unix.EPERM) && err == nil {
		// The group is taken, or this process may not bind any.
		var other error
		if other, err = c.configureLog(unbind, claimGroup+1); err == nil && !errors.Is(other, unix.EPERM) {
			return ErrClaimed
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("ask for a group of NFLOG: %w", err)
	case errors.Is(refusal, unix.EPERM):
		return fmt.Errorf("bind a group of NFLOG: %w", refusal)
	case refusal != nil:
		return fmt.Errorf("%w: bind a group of NFLOG: %w", errors.ErrUnsupported, refusal)
	}
	return nil
}

// Close gives the claim up.
func (c Claim) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// configureLog sends a command about a group of NFLOG. It returns the answer of the kernel.
func (c Claim) configureLog(command byte, group uint16) (refusal, err error) {
	const configure, attribute = 1, 1 // NFULNL_MSG_CONFIG, NFULA_CFG_CMD
	var w nlmsg.Writer
	start := w.Begin(unix.NFNL_SUBSYS_ULOG<<8|configure, unix.NLM_F_ACK, unix.AF_UNSPEC, group)
	w.Uint8(attribute, command)
	w.End(start)
	if err := c.conn.Conn.Send(w.Buf); err != nil {
		return nil, err
	}
	m, err := c.conn.Poll()
	if err != nil {
		return nil, err
	}
	c.conn.Unread = false
	for m.Next() {
		if answer, ok := m.Ack(); ok {
			return answer.Err(), nil
		}
	}
	return nil, errors.Join(errors.New("the kernel did not answer"), m.Err())
}
