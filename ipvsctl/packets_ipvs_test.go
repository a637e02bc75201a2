//go:build ipvs

package ipvsctl

import "testing"

// TestPackets sends packets through the kernel. All tests share one lab, because making one takes seconds in an emulated
// machine; each uses frontends of its own and gives them up at its end.
func TestPackets(t *testing.T) {
	l := newLab(t)
	for _, tt := range []struct {
		name string
		test func(*lab, *testing.T)
	}{
		{"Schedulers", (*lab).testSchedulers},
		{"HeldConnections", (*lab).testHeldConnections},
		{"SlowPod", (*lab).testSlowPod},
		{"Twos", (*lab).testTwos},
		{"ByDestination", (*lab).testByDestination},
		{"BySource", (*lab).testBySource},
		{"MaglevIsStable", (*lab).testMaglevIsStable},
		{"NobodyIsRefusedWhileAPodDrains", (*lab).testNobodyIsRefusedWhileAPodDrains},
		{"Protocols", (*lab).testProtocols},
		{"Persistence", (*lab).testPersistence},
		{"PersistenceWithoutItsPod", (*lab).testPersistenceWithoutItsPod},
		{"ConnectionsSurviveDrain", (*lab).testConnectionsSurviveDrain},
		{"DrainEndsWithTheLastConnection", (*lab).testDrainEndsWithTheLastConnection},
		{"TakenOutOfDrain", (*lab).testTakenOutOfDrain},
		{"UDPIsNotDrained", (*lab).testUDPIsNotDrained},
		{"VirtualServerDrains", (*lab).testVirtualServerDrains},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(l, t)
			l.clear(t)
		})
	}
}
