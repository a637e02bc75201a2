package kernel

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPersist: what fails for a while is done in the end, and what is forbidden is not tried for long.
func TestPersist(t *testing.T) {
	for _, tt := range []struct {
		err        error
		fails      int
		calls      int
		wantFailed bool
	}{
		{unix.ENOBUFS, 0, 1, false},
		{unix.ENOBUFS, 3, 4, false},
		{unix.EPERM, refusals - 1, refusals, false},
		{unix.EPERM, 1000, refusals, true},
	} {
		calls := 0
		err := Retry(func() error {
			if calls++; calls <= tt.fails {
				return fmt.Errorf("read a table: %w", tt.err)
			}
			return nil
		})
		if calls != tt.calls || (err != nil) != tt.wantFailed || tt.wantFailed && !errors.Is(err, tt.err) {
			t.Errorf("%d times %v: %d calls, %v; want %d calls, failed: %t", tt.fails, tt.err, calls, err, tt.calls, tt.wantFailed)
		}
	}
}

// TestDialFails: whoever keeps what Dial returns may close it if it is not nil.
func TestDialFails(t *testing.T) {
	none, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if c, err := Dial(int(none.Fd())); c != nil || err == nil {
		t.Errorf("got a connection: %t, error %v from what is no network namespace; want an error alone", c != nil, err)
	}
}
