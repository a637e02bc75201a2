package planning

import (
	"math"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// prices are how many nanoseconds one change of each kind takes. They divide the time of a transaction among those who needed it.
// The kernel does not say what took how long, so prices are learned from whole transactions: kernels and processors differ.
type prices [serviceport.Kinds]float64

// usual are the prices before anything is learned.
func usual() prices {
	return prices{serviceport.Slot: 2500, serviceport.Key: 4000, serviceport.Range: 100_000, serviceport.Operation: 20_000}
}

const (
	eachPayer  = 50_000 // nanoseconds that a transaction takes for each Service, whatever it changes
	mostWrong  = 4      // a transaction that takes longer than so many times its price teaches no more
	priceRange = 32     // times the usual price, or a part of it
	// longLesson is the length of a transaction of which a quarter of the error is believed; of the longest ones, half is.
	longLesson = 5 * time.Millisecond
)

// of is the price of some changes.
func (p *prices) of(c *serviceport.Counts) (sum float64) {
	for kind, n := range c {
		sum += float64(n) * p[kind]
	}
	return sum
}

// apportion divides the time that the kernel's work took among the Services whose changes asked for it, and learns from it. What
// somebody pays for in advance is among the changes of a Service, and not among all.
func (p *prices) apportion(d *Draft, changed map[state.Name]serviceport.Counts, all *serviceport.Counts, took time.Duration) {
	should := p.of(all) + float64(eachPayer*len(changed))
	wrong := float64(took) / should
	sum := 0
	for _, n := range changed {
		sum += n.Sum()
	}
	if sum > all.Sum() {
		wrong = min(wrong, mostWrong)
	}
	for name, n := range changed {
		if payer := d.payer(name); d.asked(payer) {
			d.pay(payer, Cost{Kernel: time.Duration((p.of(&n) + eachPayer) * wrong), Changes: n.Sum()})
		}
	}
	p.learn(all, should, took)
}

// learn adapts the prices to what a transaction took, and what it should have taken. Each kind answers for its part of the error. The
// longer a transaction took, the more it shows; of a brief one, the time was not measured well.
func (p *prices) learn(c *serviceport.Counts, should float64, took time.Duration) {
	if took < threadtime.Brief || should == 0 {
		return
	}
	wrong := min(max(float64(took)/should, 1./mostWrong), mostWrong)
	believed := float64(took) / float64(took+longLesson) / 2
	for kind, usual := range usual() {
		part := float64(c[kind]) * p[kind] / should
		p[kind] = min(max(p[kind]*math.Pow(wrong, part*believed), usual/priceRange), usual*priceRange)
	}
}
