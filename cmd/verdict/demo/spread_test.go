package demo

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The critical values are those of printed statistical tables.
func TestChiSquareTail(t *testing.T) {
	tests := []struct {
		x       float64
		degrees int
		want    float64
	}{
		{0, 1, 1}, {0, 2, 1}, {0, 3, 1}, {0, 8, 1},
		{3.841, 1, 0.05}, {5.991, 2, 0.05}, {7.815, 3, 0.05}, {9.488, 4, 0.05}, {11.070, 5, 0.05}, {18.307, 10, 0.05}, {30.144, 19, 0.05},
		{6.635, 1, 0.01}, {9.210, 2, 0.01}, {11.345, 3, 0.01}, {13.277, 4, 0.01},
		{15.137, 1, 0.0001}, {18.421, 2, 0.0001},
		{0.455, 1, 0.5}, {1.386, 2, 0.5}, {2.366, 3, 0.5},
	}
	for _, tt := range tests {
		if got := chiSquareTail(tt.x, tt.degrees); math.Abs(got-tt.want) > tt.want*0.005 {
			t.Errorf("chiSquareTail(%v, %d) = %.6f, want %v", tt.x, tt.degrees, got, tt.want)
		}
	}
}

func TestEvenness(t *testing.T) {
	tests := []struct {
		counts   []int
		from, to float64
	}{
		{[]int{100, 100, 100}, 1, 1},
		{[]int{150, 150}, 1, 1},
		{[]int{300}, 1, 1},
		{nil, 1, 1},
		{[]int{0, 0, 0}, 1, 1},
		{[]int{110, 95, 95}, 0.4, 0.6},
		{[]int{120, 90, 90}, 0.04, 0.06},
		{[]int{300, 150, 150}, 0, implausible / 1e6}, // one pod gets twice its share
		{[]int{300, 300, 0}, 0, implausible},         // one pod gets nothing
		{[]int{400, 200}, 0, implausible},            // weights 2:1
		{[]int{0, 600, 0}, 0, implausible},           // one pod gets everything
		{[]int{130, 85, 85}, 0.0001, 0.01},           // improbable, but possible
		{[]int{1, 1, 1, 1, 1, 0}, 0.9, 1},            // too few connections to judge
		{[]int{3000, 3000, 2700}, 0, 0.00011},        // with many connections, a tenth less is visible
	}
	for _, tt := range tests {
		if p := evenness(tt.counts); p < tt.from || p > tt.to || math.IsNaN(p) {
			t.Errorf("evenness(%v) = %g, want it between %g and %g", tt.counts, p, tt.from, tt.to)
		}
	}
}

// By definition of the p value, a tenth of all fair picks has a p value below 0.1.
func TestEvennessOfFairPicks(t *testing.T) {
	const runs, seed = 4000, 7
	for _, pods := range []int{2, 3, 4} {
		dice, low := rand.New(rand.NewPCG(seed, uint64(pods))), 0
		for range runs {
			counts := make([]int, pods)
			for range connections {
				counts[dice.IntN(pods)]++
			}
			p := evenness(counts)
			if p < 0.1 {
				low++
			}
			if p < implausible/10 {
				t.Errorf("a fair pick of %d pods came out as %v, p = %g", pods, counts, p)
			}
		}
		if share := float64(low) / runs; share < 0.08 || share > 0.12 {
			t.Errorf("%d pods: %.3f of fair picks have p < 0.1", pods, share)
		}
	}
}

func TestJudge(t *testing.T) {
	three, two := []string{"pod-a", "pod-b", "pod-c"}, []string{"pod-a", "pod-c"}
	even := tally{"pod-a": 101, "pod-b": 99, "pod-c": 100}
	tests := []struct {
		name  string
		round round
		says  string // the sentence
		fails string // part of the error
	}{
		{"even", round{[]column{{"IPv4", even}, {"IPv6", even}}, three, nil}, "Even within statistical noise: IPv4 p = 0.99, IPv6 p = 0.99.", ""},
		{"one family", round{[]column{{"IPv4", even}}, three, nil}, "Even within statistical noise: IPv4 p = 0.99.", ""},
		{"moved", round{[]column{{"IPv4", tally{"pod-a": 150, "pod-c": 150}}}, two, []string{"pod-b"}}, "Even within statistical noise: IPv4 p = 1.00.", ""},
		{"uneven", round{[]column{{"IPv4", tally{"pod-a": 200, "pod-b": 50, "pod-c": 50}}}, three, nil}, "", "IPv4 connections are not spread evenly over [pod-a pod-b pod-c]: [200 50 50] (chi-square p = "},
		{"uneven in the second family", round{[]column{{"IPv4", even}, {"IPv6", tally{"pod-a": 300}}}, three, nil}, "", "IPv6 connections are not spread evenly"},
		{"not moved", round{[]column{{"IPv4", even}}, two, []string{"pod-b"}}, "", "99 IPv4 connections still went to pod-b"},
		{"a single one not moved", round{[]column{{"IPv4", tally{"pod-a": 150, "pod-b": 1, "pod-c": 149}}}, two, []string{"pod-b"}}, "", "1 IPv4 connections still went to pod-b"},
		{"an unknown pod", round{[]column{{"IPv4", tally{"pod-a": 100, "pod-b": 99, "pod-c": 100, "": 1}}}, three, nil}, "", "1 IPv4 connections reached a pod that is none of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			says, err := tt.round.judge()
			if says != tt.says || (err == nil) != (tt.fails == "") {
				t.Errorf("judge() = %q, %v; want %q and an error with %q", says, err, tt.says, tt.fails)
			}
			if err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %q, want it to contain %q", err, tt.fails)
			}
		})
	}
}
