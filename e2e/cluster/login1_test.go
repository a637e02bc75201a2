//go:build e2e

package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// login1 stands in for D-Bus and systemd-logind on a node, at a socket of its own. The kubelet takes a lock there that delays the
// end of the system, hears that the system is about to stop, ends its pods, and gives the lock back. Only who asks for the end is
// not real.
type login1 struct {
	mu   sync.Mutex
	conn *net.UnixConn // to the kubelet
	lock *os.File      // it ends when the kubelet closes the other end
}

// listen serves the kubelets of a node, one after the other.
func (l *login1) listen(path string) (io.Closer, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return // closed
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				err := authenticate(in, conn)
				for err == nil {
					err = l.answer(in, conn) // the log of the kubelet says what it misses
				}
			}()
		}
	}()
	return listener, nil
}

// stop tells the kubelet that the system is about to stop, and returns when it is ready for that. As logind, it does not wait for
// ever.
func (l *login1) stop() error {
	l.mu.Lock()
	conn, lock := l.conn, l.lock
	l.mu.Unlock()
	if conn == nil {
		return errors.New("the kubelet has taken no lock")
	}
	defer lock.Close()
	header := wire(nil).field(1, "o", "/org/freedesktop/login1").field(2, "s", "org.freedesktop.login1.Manager").
		field(3, "s", "PrepareForShutdown").field(7, "s", "org.freedesktop.login1").field(8, "g", "b")
	err := send(conn, signalMessage, header, wire(nil).number(1))
	if err == nil {
		err = lock.SetReadDeadline(time.Now().Add(shutdownGrace))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, lock)
	}
	if err != nil {
		return fmt.Errorf("wait until the kubelet gives its lock back: %w", err)
	}
	return nil
}

// authenticate believes whoever asks.
func authenticate(in *bufio.Reader, out io.Writer) error {
	for {
		line, err := in.ReadString('\n')
		answer := "REJECTED EXTERNAL\r\n"
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 00000000000000000000000000000000\r\n"
		case line == "NEGOTIATE_UNIX_FD\r\n":
			answer = "AGREE_UNIX_FD\r\n"
		case line == "BEGIN\r\n":
			return nil
		}
		if _, err := io.WriteString(out, answer); err != nil {
			return err
		}
	}
}

// answer reads one call and answers it.
func (l *login1) answer(in *bufio.Reader, conn *net.UnixConn) error {
	serial, member, err := readCall(in)
	if err != nil {
		return err
	}
	header, body, passed := wire(nil).field(5, "u", serial), wire(nil), []int(nil)
	switch member {
	case "Hello":
		header, body = header.field(8, "g", "s"), body.text(":1.1")
	case "Get": // InhibitDelayMaxUSec
		header, body = header.field(8, "g", "v"), body.signature("t").pad(8)
		body = binary.LittleEndian.AppendUint64(body, uint64(shutdownGrace.Microseconds()))
	case "Inhibit":
		ours, theirs, err := os.Pipe()
		if err != nil {
			return err
		}
		defer theirs.Close()
		l.mu.Lock()
		l.conn, l.lock = conn, ours
		l.mu.Unlock()
		header, body, passed = header.field(8, "g", "h").field(9, "u", uint32(1)), body.number(0), []int{int(theirs.Fd())}
	}
	return send(conn, replyMessage, header, body, passed...)
}

// Kinds of messages.
const (
	replyMessage  = 2
	signalMessage = 4
)

// wire is a part of a message of D-Bus: https://dbus.freedesktop.org/doc/dbus-specification.html#message-protocol.
type wire []byte

func (w wire) pad(to int) wire {
	for len(w)%to != 0 {
		w = append(w, 0)
	}
	return w
}

func (w wire) number(n uint32) wire { return binary.LittleEndian.AppendUint32(w.pad(4), n) }

func (w wire) text(s string) wire { return append(append(w.number(uint32(len(s))), s...), 0) }

func (w wire) signature(s string) wire { return append(append(append(w, byte(len(s))), s...), 0) }

// field adds a field of the header.
func (w wire) field(code byte, kind string, value any) wire {
	w = append(w.pad(8), code).signature(kind)
	switch v := value.(type) {
	case uint32:
		return w.number(v)
	case string:
		if kind == "g" {
			return w.signature(v)
		}
		return w.text(v)
	}
	panic(kind)
}

func send(conn *net.UnixConn, kind byte, header, body wire, files ...int) error {
	const serial = 1 // nobody answers
	message := wire{'l', kind, 0, 1}.number(uint32(len(body))).number(serial).number(uint32(len(header)))
	message = append(append(message, header...).pad(8), body...)
	_, _, err := conn.WriteMsgUnix(message, unix.UnixRights(files...), nil)
	return err
}

// readCall reads a message in little endian. Of a call, only the name of the method matters.
func readCall(in io.Reader) (serial uint32, member string, err error) {
	start := make([]byte, 16)
	if _, err := io.ReadFull(in, start); err != nil {
		return 0, "", err
	}
	number := binary.LittleEndian.Uint32
	header := make([]byte, (number(start[12:])+7)/8*8)
	if _, err := io.ReadFull(in, header); err != nil {
		return 0, "", err
	}
	if _, err := io.CopyN(io.Discard, in, int64(number(start[4:]))); err != nil {
		return 0, "", err
	}
	for at := 0; at+8 < len(header); at = (at + 7) / 8 * 8 {
		code, kind := header[at], header[at+2]
		switch at += 4; kind { // behind the code, and the signature of one letter
		case 'g':
			at += 1 + int(header[at]) + 1
		case 'u':
			at += 4
		default:
			length := int(number(header[at:]))
			if at += 4; code == 3 {
				member = string(header[at : at+length])
			}
			at += length + 1
		}
	}
	return number(start[8:]), member, nil
}
