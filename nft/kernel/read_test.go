package kernel

import (
	"errors"
	"testing"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

func TestRetryInterrupted(t *testing.T) {
	other := errors.New("something else")
	for _, test := range []struct {
		interrupted int
		then, want  error
	}{
		{0, nil, nil}, {dumpAttempts - 1, nil, nil}, {1, other, other}, {dumpAttempts, nil, nlmsg.ErrInterrupted},
	} {
		reads := 0
		err := RetryInterrupted("chains", func() error {
			if reads++; reads <= test.interrupted {
				return nlmsg.ErrInterrupted
			}
			return test.then
		})
		if !errors.Is(err, test.want) || reads != min(test.interrupted+1, dumpAttempts) {
			t.Errorf("interrupted %d times, then %v: %v after %d reads", test.interrupted, test.then, err, reads)
		}
	}
}
