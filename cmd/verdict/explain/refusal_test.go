package explain

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// director is a kernel with one virtual server, whose rules let everything pass.
type director struct {
	kernel
	server ipvsctl.Status
}

func (d director) Server(ipvsctl.Key) (ipvsctl.Status, bool, error) { return d.server, true, nil }

func (director) Walk(string, string, inspect.Packet) (inspect.Passage, error) {
	return inspect.Passage{}, nil
}

func (director) Offered(inspect.Packet, bool, string) (after uint32, by inspect.Look, device string, err error) {
	return 0, by, "", nil
}

func (director) FastPath(string) (f socket.FastPath, err error) { return f, nil }

func (director) Problems(string) ([]socket.Problem, error) { return nil, nil }

// TestFullRealServers: IPVS gives no connection to a real server that has as many as its limit (ipvsadm -x) allows.
func TestFullRealServers(t *testing.T) {
	real := func(at string, weight uint16, active, limit int) ipvsctl.RealStatus {
		return ipvsctl.RealStatus{
			RealServer: ipvsctl.RealServer{Addr: netip.MustParseAddrPort(at), Weight: weight}, Active: active, Inactive: 1, Limit: limit,
		}
	}
	full, free := real("10.0.0.1:80", 1, 4, 5), real("10.0.0.2:80", 1, 3, 5)
	for _, tt := range []struct {
		name    string
		reals   []ipvsctl.RealStatus
		outcome Outcome
		want    string
	}{
		{"one is full", []ipvsctl.RealStatus{full, free}, Served, "goes to 10.0.0.2:80,"},
		{"all are full", []ipvsctl.RealStatus{full}, Dropped, "dropped: no real server has a weight above 0 (besides 1 real server, full)"},
		{"no limit", []ipvsctl.RealStatus{real("10.0.0.3:80", 1, 900, 0)}, Served, "goes to 10.0.0.3:80,"},
		{"weight 0", []ipvsctl.RealStatus{real("10.0.0.3:80", 0, 1, 0)}, Dropped, "dropped: no real server has a weight above 0"},
	} {
		q := question{
			src: netip.MustParseAddr("10.0.0.9"), dst: netip.MustParseAddrPort("10.96.0.1:80"), protocol: uint8(ipvsctl.TCP),
		}
		x := newExplainer(director{server: ipvsctl.Status{Server: wire.Server{Header: wire.Header{Scheduler: "wlc"}}, RealServers: tt.reals}}, q)
		x.packet = inspect.Packet{Src: q.src, Dst: q.dst.Addr(), Protocol: q.protocol, DstPort: q.dst.Port()}
		if err := x.balanced(inspect.Look{Set: program.IPVSFrontends, Label: "default/web:http"}, []string{"input"}); err != nil {
			t.Fatal(err)
		}
		x.Verdict.say()
		if x.Verdict.Outcome != tt.outcome || !strings.HasPrefix(x.Verdict.Text, tt.want) {
			t.Errorf("%s: %s; want %s", tt.name, x.Verdict.Text, tt.want)
		}
	}
}
