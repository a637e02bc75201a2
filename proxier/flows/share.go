package flows

import (
	"time"
)

// A cleaning takes long when many packets with forged sources have filled the kernel's table, and it holds up the packets
// of others. In the long run, cleanings take one part in cleanShare of a core at most, unless one takes longer than a third of
// a second. A few short ones in a row need no rest: when a node dies, its endpoints fail one after the other, and the kernel
// tells their clients "no route to host" after 3 seconds. Those clients have a share of their own, because others who change
// Services of UDP all the time use up the first one.
const (
	cleanShare = 20
	cleanBurst = 100 * time.Millisecond
	maxRest    = 6 * time.Second
)

// share bounds the time that cleanings take.
type share struct {
	debt time.Duration // time of cleanings that is not made up for by rest
	at   time.Time     // when debt was right
	next time.Time     // the next cleaning must not begin earlier
}

// spend delays the next cleaning if cleanings have taken too much time.
func (s *share) spend(took time.Duration, now time.Time) {
	s.debt = max(0, s.debt-now.Sub(s.at)/cleanShare) + took
	s.debt, s.at = min(s.debt, cleanBurst+maxRest/cleanShare), now
	s.next = now.Add(cleanShare * max(0, s.debt-cleanBurst))
}
