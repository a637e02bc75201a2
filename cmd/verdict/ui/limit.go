package ui

import (
	"errors"
	"sync"
	"time"
)

// limit bounds how many questions that read single elements of the kernel are answered at the same time.
type limit chan struct{}

// atOnce is how many of them there may be. The daemon works beside them.
const atOnce = 2

// patience is how long a question waits for its turn.
const patience = 2 * time.Second

var errBusy = errors.New("too many questions at the same time; the page asks again")

func newLimit() limit { return make(limit, atOnce) }

// do answers a question in its turn.
func (l limit) do(answer func() (any, error)) (any, error) {
	select {
	case l <- struct{}{}:
	case <-time.After(patience):
		return nil, errBusy
	}
	defer func() { <-l }()
	return answer()
}

// cache keeps answers for a second, so that many viewers of one thing cost as much as one.
type cache struct {
	mu      sync.Mutex
	answers map[string]*cached
}

type cached struct {
	once  sync.Once
	at    time.Time
	value any
	err   error
}

// Answers are kept for keepFor, and maxKept of them at most.
const (
	keepFor = time.Second
	maxKept = 256
)

// get returns the answer that is kept under a key, or asks.
func (c *cache) get(key string, ask func() (any, error)) (any, error) {
	a := c.entry(key, time.Now())
	a.once.Do(func() { a.value, a.err = ask() })
	return a.value, a.err
}

func (c *cache) entry(key string, now time.Time) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.answers[key]; a != nil && now.Sub(a.at) < keepFor {
		return a
	}
	if c.answers == nil || len(c.answers) >= maxKept {
		c.answers = map[string]*cached{}
	}
	a := &cached{at: now}
	c.answers[key] = a
	return a
}
