package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeaveWaitsForPackets: after it has ended connections, the command stays for the packets that are reset, unless it is interrupted.
func TestLeaveWaitsForPackets(t *testing.T) {
	fault := errors.New("no answer")
	for _, tt := range []struct {
		name              string
		ended             int
		fault, want       error
		interrupted, took time.Duration
	}{
		{"connections", 4, nil, nil, time.Hour, 5 * time.Second},
		{"some of the connections", 4, fault, fault, time.Hour, 5 * time.Second},
		{"no connection", 0, nil, nil, time.Hour, 0},
		{"interrupted", 4, nil, context.DeadlineExceeded, time.Second, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.interrupted)
				defer cancel()
				began, l := time.Now(), leaver{out: io.Discard}
				err := l.end(ctx, func() (int, error) { return tt.ended, tt.fault })
				if took := time.Since(began); took != tt.took || !errors.Is(err, tt.want) {
					t.Errorf("it ends after %s with %v, want %s and %v", took, err, tt.took, tt.want)
				}
			})
		})
	}
}
