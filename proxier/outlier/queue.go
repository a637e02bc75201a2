package outlier

import (
	"cmp"
	"container/heap"
	"time"
)

// crowded is when an endpoint is tried again whose namespace has as many questions on their way as it can have.
const crowded = 100 * time.Millisecond

// queue is a heap of endpoints by the time of their next question.
type queue []*endpoint

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	return cmp.Or(q[i].next.Compare(q[j].next), q[i].at.Compare(q[j].at)) < 0
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	e := x.(*endpoint)
	e.queue, e.index = q, len(*q)
	*q = append(*q, e)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.queue = nil
	return e
}

// schedule puts an endpoint into the right place of the right queue, after its phase or the time of its next question
// has changed. One that is being asked is in no queue.
func (d *Detector) schedule(e *endpoint) {
	want := &d.suspects
	if e.phase == failed {
		want = &d.failures
	}
	if e.queue != nil && (e.asking || e.queue != want) {
		heap.Remove(e.queue, e.index)
	}
	switch {
	case e.asking:
	case e.queue == nil:
		heap.Push(want, e)
	default:
		heap.Fix(want, e.index)
	}
}

// due returns the questions to the endpoints of a queue whose time has come.
func (d *Detector) due(q *queue, list []Question, now time.Time) []Question {
	for d.asked < maxQuestions && len(*q) > 0 && !now.Before((*q)[0].next) {
		switch e := (*q)[0]; {
		case e.phase == calm:
			d.forget(e)
		case d.questions[e.namespace()] >= maxQuestionsOfTenant:
			e.next = now.Add(crowded)
			d.schedule(e)
		default:
			d.ask(e)
			list = append(list, Question{At: e.at})
		}
	}
	return list
}
