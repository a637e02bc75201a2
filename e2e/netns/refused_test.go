//go:build nokernel

package netns

import (
	"errors"
	"testing"
)

// TestRefused: with the tag nokernel even root gets no namespace, so a test that lacks the build line fails.
func TestRefused(t *testing.T) {
	for name, try := range map[string]func(string) (*Namespace, error){"Make": Make, "makeBare": makeBare} {
		if n, err := try("test"); !errors.Is(err, errRefused) || n != nil {
			t.Errorf("%s: %v, error %v", name, n, err)
		}
	}
}
