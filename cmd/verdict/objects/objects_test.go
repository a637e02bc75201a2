package objects

import (
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/config"
)

// TestEventLimiterIsItsOwn: a flood of Events does not take the requests of lists and watches.
func TestEventLimiterIsItsOwn(t *testing.T) {
	kubeconfig := t.TempDir() + "/kubeconfig"
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := config.Default()
	s.Kubeconfig = kubeconfig
	watches, err1 := NewClient(&s, "test", nil)
	notes, err2 := NewEventClient(&s, "test")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	used := notes.EventsV1().RESTClient().GetRateLimiter()
	for used.TryAccept() {
	}
	if !watches.CoreV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Error("lists and watches wait for Events")
	}
}
