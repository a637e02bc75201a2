package probe

import "testing"

// TestDefinite expects that only answers of the endpoint or its host are definite. Silence and a missing route may have their
// cause on the way.
func TestDefinite(t *testing.T) {
	definite := map[Fault]bool{Refused: true, Reset: true, Closed: true, WrongAnswer: true}
	names := map[string]bool{}
	for f := NoFault; f <= HostAnswers; f++ {
		if f.Definite() != definite[f] {
			t.Errorf("%s: definite %t, want %t", f, f.Definite(), definite[f])
		}
		if (Answer{Fault: f}).Good() != (f == NoFault) {
			t.Errorf("%s: good", f)
		}
		names[f.String()] = true
	}
	if len(names) != int(HostAnswers)+1 {
		t.Errorf("two faults have the same name: %v", names)
	}
}
