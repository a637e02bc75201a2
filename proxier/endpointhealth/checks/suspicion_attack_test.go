package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestBorrowedEndpoints: a tenant has as many failed endpoints as he can have, all his questions are on their way, and he wrote
// the endpoint of another into his slices as well. It comes under suspicion all the same, and is asked at once.
func TestBorrowedEndpoints(t *testing.T) {
	tenant, bank := state.Name{Namespace: "a-tenant", Name: "web"}, state.Name{Namespace: "bank", Name: "web"}
	d, begin := calmDetector(), time.Unix(1e9, 0)
	both := []Member{{Service: tenant}, {Service: bank}}
	d.Suspect(endpointNo(200), Unanswered, both, begin)
	first := d.Due(begin)
	if len(first) != 2 { // each Service asks
		t.Fatalf("asked: %v", first)
	}
	for i := range maxOfTenant {
		end := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		d.Suspect(end, Unanswered, []Member{{Service: tenant}}, begin)
	}
	if n := len(first) - 1 + len(d.Due(begin)); n != maxQuestions/2 {
		t.Errorf("%d questions of a tenant are on their way, want half of them", n)
	}
	d.Terms[Suspicion].Rates.Take(tenant.Namespace, time.Hour, begin)
	d.Suspect(endpointNo(1), Unanswered, both, begin)
	for _, q := range first {
		d.Answered(q, probe.NoAnswer, true, begin)
	}
	asked := map[netip.AddrPort]bool{}
	for _, q := range d.Due(begin) {
		asked[q.At] = true
	}
	if !asked[endpointNo(1)] || !asked[endpointNo(200)] || len(asked) > 3 { // and witnesses
		t.Errorf("asked: %v, want the endpoints of the other namespace", asked)
	}
}

// TestGreedyTenantsLeaveRoom: tenants have as many endpoints under suspicion as they can, and that of another one finds room.
func TestGreedyTenantsLeaveRoom(t *testing.T) {
	d, begin := calmDetector(), time.Unix(1e9, 0)
	for i := range 8 * maxOfTenant {
		end := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		greedy := state.Name{Namespace: string(rune('a' + i/maxOfTenant)), Name: "web"}
		d.Suspect(end, Unanswered, []Member{{Service: greedy}}, begin)
	}
	if _, n := d.Terms[Suspicion].Room.Used("a"); n != maxOfTenant {
		t.Errorf("the first tenant has %d", n)
	}
	if d.Suspect(endpointNo(1), Unanswered, []Member{{Service: web}}, begin); !d.Knows(endpointNo(1)) {
		t.Errorf("no room beside %d", len(d.tracked))
	}
}

// TestForeignWord: a tenant wrote the dead endpoint of another into his slices, and calls it ready again and again. It stays out,
// and is asked at most once a second; two good answers bring it back.
func TestForeignWord(t *testing.T) {
	s := newScene(t)
	foreign := state.Name{Namespace: "tenant", Name: "web"}
	s.fail(probe.NoAnswer, true, SomeAnswer, 1)
	at := endpointNo(1)
	s.d.Refresh(foreign, map[netip.AddrPort]Member{at: {Service: foreign}}, s.now)
	asked, begin := 0, s.now
	for i := range 200 {
		s.now = s.now.Add(50 * time.Millisecond)
		s.d.Refresh(foreign, map[netip.AddrPort]Member{at: {Service: foreign, Word: Word{Ready: i%2 == 0}}}, s.now)
		for _, q := range s.d.Due(s.now) {
			if q.Doubts != nil {
				s.d.Witnessed(SomeAnswer, s.now)
				continue
			}
			asked++
			s.d.Answered(q, probe.NoAnswer, true, s.now)
		}
		s.ejects(None, 1)
	}
	if most := int(s.now.Sub(begin)/time.Second) + 1; asked > most || asked < 2 {
		t.Errorf("asked %d times, at most %d are allowed", asked, most)
	}
	for range 2 {
		s.now = s.now.Add(longestPause)
		for _, q := range s.d.Due(s.now) {
			s.d.Answered(q, probe.NoFault, true, s.now)
		}
	}
	s.ejects(None)
}

// TestManyServicesUnderSuspicion: a tenant has a thousand Services with the same thousand endpoints, and all of them come under
// suspicion. What the detector keeps, and the work with it, is bounded; the endpoint of another tenant finds room.
func TestManyServicesUnderSuspicion(t *testing.T) {
	d, begin := calmDetector(), time.Unix(1e9, 0)
	var members []Member
	for i := range 1000 {
		members = append(members, Member{Service: state.Name{Namespace: "tenant", Name: fmt.Sprint(i)}})
	}
	for i := range 1000 {
		d.Suspect(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80), Unanswered, members, begin)
	}
	if kept := len(d.Suspects(state.Name{})); kept > maxOfTenant {
		t.Errorf("%d are kept, at most %d are allowed", kept, maxOfTenant)
	}
	if d.Suspect(endpointNo(1), Unanswered, []Member{{Service: web}}, begin); d.services[web] == nil {
		t.Error("no room for another tenant")
	}
}

// TestForeignNode: a tenant wrote the endpoints of another into his slices, and names no node or another one. When the node of the
// endpoint dies, its other endpoints are asked all the same, and none of them is a witness. The tenant's words exclude nobody else's.
func TestForeignNode(t *testing.T) {
	d, begin, at := calmDetector(), time.Unix(1e9, 0), endpointNo(1)
	foreign := Member{Service: state.Name{Namespace: "tenant", Name: "web"}, Word: Word{Node: "alive"}}
	nameless := Member{Service: state.Name{Namespace: "tenant-2", Name: "web"}}
	own := Member{Service: web, Word: Word{Node: "dead"}}
	d.Suspect(at, Unanswered, []Member{nameless, foreign, own}, begin)
	for _, q := range d.Due(begin) {
		d.Answered(q, probe.NoAnswer, true, begin)
	}
	doubts := d.Due(begin)[0].Doubts
	for _, m := range []Member{nameless, foreign, own} {
		of := doubts[m.Service.Namespace]
		if !of.Addrs[at.Addr()] || of.Nodes[m.Word.Node] != (m.Word.Node != "") || len(of.Nodes) > 1 {
			t.Errorf("%s doubts %v", m.Service.Namespace, of)
		}
	}
	for i, got := range [][]string{d.doubts[false], d.doubts[true]} {
		slices.Sort(got)
		got = slices.DeleteFunc(got, func(node string) bool { return node == "" })
		if want := []string{"alive", "dead"}; !slices.Equal(got, want) {
			t.Errorf("%d: nodes in doubt: %v, want %v", i, got, want)
		}
	}
}
