//go:build !nokernel

package kernel

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// TestLostAnswer: a request whose answer got lost ends with an error, and the socket can be used again.
func TestLostAnswer(t *testing.T) {
	c, err := Dial(netns.New(t).Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Patience = 50 * time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- c.Answers(1<<30, func(nlmsg.Attributes) {}) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "none came within 50ms") {
			t.Errorf("error %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("the engine still waits for the answer")
	}
	c.Patience = nlmsg.AnswerTimeout
	if _, err := c.Generation(); err != nil {
		t.Errorf("after a lost answer: %v", err)
	}
}
