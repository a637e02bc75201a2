package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestFairPicksAreEven: the seed is fixed, so that the result is always the same.
func TestFairPicksAreEven(t *testing.T) {
	for pods := 2; pods <= 4; pods++ {
		names, dice := []string{"a", "b", "c", "d"}[:pods], rand.New(rand.NewPCG(7, uint64(pods)))
		for range 4000 {
			hits := map[string]int{}
			for range connections {
				hits[names[dice.IntN(pods)]]++
			}
			if err := judge("10.96.0.10:80", hits, names); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	three, two := []string{"pod-a", "pod-b", "pod-c"}, []string{"pod-a", "pod-c"}
	tests := []struct {
		name  string
		hits  map[string]int
		pods  []string
		fails string // part of the error
	}{
		{"even", map[string]int{"pod-a": 101, "pod-b": 99, "pod-c": 100}, three, ""},
		{"improbable, but possible", map[string]int{"pod-a": 130, "pod-b": 85, "pod-c": 85}, three, ""},
		{"moved", map[string]int{"pod-a": 150, "pod-c": 150}, two, ""},
		{"twice its share", map[string]int{"pod-a": 300, "pod-b": 150, "pod-c": 150}, three, "connections to 10.96.0.10:80 are not spread evenly over [pod-a pod-b pod-c]: map[pod-a:300 pod-b:150 pod-c:150]"},
		{"nothing for one", map[string]int{"pod-a": 300, "pod-c": 300}, three, "connections to 10.96.0.10:80 are not spread evenly"},
		{"weights 2:1", map[string]int{"pod-a": 400, "pod-c": 200}, two, "connections to 10.96.0.10:80 are not spread evenly"},
		{"smaller differences of many", map[string]int{"pod-a": 3400, "pod-b": 3300, "pod-c": 2300}, three, "connections to 10.96.0.10:80 are not spread evenly"},
		{"a single one not moved", map[string]int{"pod-a": 150, "pod-b": 1, "pod-c": 149}, two, "1 connections to 10.96.0.10:80 went to \"pod-b\", which is none"},
		{"an incomplete name", map[string]int{"pod-a": 100, "pod-b": 99, "pod-c": 100, "": 1}, three, "1 connections to 10.96.0.10:80 went to \"\", which is none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := judge("10.96.0.10:80", tt.hits, tt.pods)
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %v, want one with %q", err, tt.fails)
			}
		})
	}
}

// TestTooLate: a demo that does not end says so, and is no interrupt.
func TestTooLate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if err := interrupted(context.Cause(ctx)); err == nil || err.Error() != "not finished within 3m0s; nothing of it is left" {
		t.Errorf("got %v", err)
	}
}
