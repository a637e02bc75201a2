package ipvsctl

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	m := newMemory()
	m.foreign(probeKey(1), "rr", "192.0.2.7:80")
	m.foreign(probeKey(2), "rr")
	m.State[probeKey(2)].Ours = true // an interrupted probe
	m.foreign(web.Key, "rr", "192.0.2.7:80")
	s, err := probe(m, []string{"rr", "magic", "mh", "spell"})
	must(t, err)
	if !slices.Equal(s.Schedulers, []string{"rr", "mh"}) || !slices.Equal(s.Missing, []string{"magic", "spell"}) {
		t.Errorf("found %+v", s)
	}
	if !s.Has("mh") || s.Has("magic") {
		t.Error("Has is wrong")
	}
	expect(t, "message", s.String(), "schedulers not available: magic spell (missing kernel modules: ip_vs_magic ip_vs_spell)")
	expect(t, "left in the kernel", picture(t, m), `
		10.96.0.1:80/tcp rr foreign 192.0.2.7:80=1
		198.51.100.1:1/tcp rr foreign 192.0.2.7:80=1`)
}

func TestProbeFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind OperationKind
		err  error
	}{
		{"not allowed", AddServer, syscall.EPERM},
		{"cannot clean up", DeleteServer, syscall.ENOMEM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			m.fail = func(o Operation) error {
				if o.Kind == tt.kind {
					return tt.err
				}
				return nil
			}
			if _, err := probe(m, []string{"rr"}); !errors.Is(err, tt.err) || !strings.Contains(err.Error(), "rr") {
				t.Errorf("error is %v", err)
			}
		})
	}
	t.Run("cannot read", func(t *testing.T) {
		m := newMemory()
		m.readError = syscall.EPERM
		if _, err := probe(m, []string{"rr"}); !errors.Is(err, syscall.EPERM) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("all ports taken", func(t *testing.T) {
		m := newMemory()
		for port := uint16(1); port < 100; port++ {
			m.foreign(probeKey(port), "rr")
		}
		if _, err := probe(m, []string{"rr"}); err == nil {
			t.Error("no error")
		}
	})
}

func TestList(t *testing.T) {
	m := leftovers(t)
	m.State[web.Key].Reals[web.RealServers[0].Addr].Active = 3
	got, err := listServers(m, time.Time{})
	must(t, err)
	var keys []string
	for _, s := range got {
		keys = append(keys, s.String())
	}
	if !slices.Equal(keys, []string{"10.96.0.1:80/tcp", "10.96.0.2:25/tcp", "10.96.0.3:53/udp"}) {
		t.Errorf("listed %v", keys)
	}
	if r := got[0].RealServers; len(r) != 2 || r[0].Active != 3 || r[1].Active != 0 || r[0].Weight != 1 {
		t.Errorf("real servers are %+v", r)
	}
}
