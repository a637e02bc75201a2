//go:build ipvs

package ipvsctl

import "testing"

// TestPackets sends packets through the kernel. All tests share one lab, because making one takes seconds in an
// emulated machine; each uses frontends of its own and gives them up at its end.
func TestPackets(t *testing.T) {
	d := newDirector(t)
	for _, tt := range []struct {
		name string
		test func(*director, *testing.T)
	}{
		{"Schedulers", (*director).testSchedulers},
		{"HeldConnections", (*director).testHeldConnections},
		{"SlowPod", (*director).testSlowPod},
		{"Twos", (*director).testTwos},
		{"ByDestination", (*director).testByDestination},
		{"BySource", (*director).testBySource},
		{"MaglevIsStable", (*director).testMaglevIsStable},
		{"NobodyIsRefusedWhileAPodDrains", (*director).testNobodyIsRefusedWhileAPodDrains},
		{"Protocols", (*director).testProtocols},
		{"Persistence", (*director).testPersistence},
		{"PersistenceWithoutItsPod", (*director).testPersistenceWithoutItsPod},
		{"ConnectionsSurviveDrain", (*director).testConnectionsSurviveDrain},
		{"DrainEndsWithTheLastConnection", (*director).testDrainEndsWithTheLastConnection},
		{"TakenOutOfDrain", (*director).testTakenOutOfDrain},
		{"UDPIsNotDrained", (*director).testUDPIsNotDrained},
		{"VirtualServerDrains", (*director).testVirtualServerDrains},
		{"Adopt", (*director).testAdopt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(d, t)
			d.clear(t)
		})
	}
}
