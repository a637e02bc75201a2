package conntrack

import "sync"

// later are the frontends of Services that changed while flows are being cleaned. What a Stale says of them is out of
// date: the kernel may have newer rules already, and flows made by those may lead to endpoints that the Stale does not
// know. They are left to the next cleaning, which looks at all frontends of a Service that changed meanwhile.
//
// A Service is entered here before its rules are, and a flow can be read from the kernel only when its rules were there;
// so whoever asks about a flow that was read finds its frontend.
type later struct {
	mu        sync.Mutex
	frontends map[Frontend]struct{}
}

func (l *later) add(ports []udpPort) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ports {
		for _, f := range ports[i].frontends {
			l.frontends[f] = struct{}{}
		}
	}
}

func (l *later) has(f Frontend) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, is := l.frontends[f]
	return is
}
