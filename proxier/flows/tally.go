package flows

import "time"

// sumPeriod is how much time passes at least between two lines about deleted connections.
const sumPeriod = time.Second

// tally counts connections for the log. A tenant can cause them again and again, so the sum of some time is one line.
type tally struct {
	sum int
	at  time.Time // of the last line
}

// add returns how many connections the next line is about; 0: no line is due.
func (t *tally) add(n int, now time.Time) (due int) {
	t.sum += n
	if t.sum == 0 || now.Sub(t.at) < sumPeriod {
		return 0
	}
	due, t.sum, t.at = t.sum, 0, now
	return due
}
