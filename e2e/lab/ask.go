package lab

import "time"

// Ask makes a connection, gets one answer and closes the connection, in the namespace of the calling thread.
func Ask(q Question) Result { return closed(OpenAndAsk, q) }

// OpenAndAsk returns a flow if the connection could be made, whatever became of it then.
func OpenAndAsk(q Question) (f *Flow, r Result) {
	f, repeated, err := open(q)
	if err != nil {
		r = resultOf(err)
	} else {
		r = f.exchange(q.Patience, !f.protocol.serverSpeaksFirst())
	}
	r.Repeated = repeated
	return f, r
}

// Ask does the same from inside the namespace.
func (n *Namespace) Ask(q Question) Result { return closed(n.Open, q) }

// OpenAndAsk does the same from inside the namespace.
func (n *Namespace) OpenAndAsk(q Question) (f *Flow, r Result) {
	err := n.Do(func() error {
		f, r = OpenAndAsk(q)
		return nil
	})
	if err != nil {
		return nil, Result{Outcome: Failed, Err: err}
	}
	return f, r
}

// Open makes a connection from inside the namespace and gets one answer. The flow stays open if there was an answer;
// otherwise it is nil.
func (n *Namespace) Open(q Question) (*Flow, Result) {
	f, r := n.OpenAndAsk(q)
	if f != nil && r.Outcome != Answered {
		f.Close()
		f = nil
	}
	return f, r
}

// closed closes the connection that it has opened.
func closed(open func(Question) (*Flow, Result), q Question) Result {
	start := time.Now()
	f, r := open(q)
	if f != nil {
		f.Close()
	}
	r.Took = time.Since(start)
	return r
}
