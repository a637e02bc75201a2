package main

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
	"github.com/verdict-proxy/verdict/proxier"
)

// successor takes the node over from kube-proxy: it removes what kube-proxy left, when the first whole pass is in the
// kernel.
type successor struct {
	proxier.Observer
	once sync.Once
	log  *slog.Logger
}

func newSuccessor(o proxier.Observer, log *slog.Logger) *successor {
	return &successor{Observer: o, log: log}
}

// PassDone implements proxier.Observer.
func (s *successor) PassDone(r proxier.PassReport) {
	s.Observer.PassDone(r)
	if r.Result.Full && r.Result.Err == nil {
		s.once.Do(func() { go s.takeOver() })
	}
}

// syncPeriod is longer than the time after which a kube-proxy that runs writes its rules again.
const syncPeriod = 40 * time.Second

// attempts is how often the removal is tried. Other software may change the same tables at the same time.
const attempts = 5

func (s *successor) takeOver() {
	start := time.Now()
	var removed []string
	for n := 1; ; n++ {
		names, err := s.remove()
		removed = append(removed, names...)
		if err == nil {
			break
		}
		if n == attempts {
			s.log.Error("cannot remove all that kube-proxy may have left; its rules stay beside those of Verdict and get out of date; "+
				"remove them with \"kube-proxy --cleanup\", or restart the node", "error", oneLine(err))
			return
		}
		time.Sleep(time.Duration(n) * 200 * time.Millisecond)
	}
	if len(removed) == 0 {
		s.log.Info("kube-proxy has left nothing on this node")
		return
	}
	s.log.Info("took over from kube-proxy; its rules are removed", "removed", strings.Join(removed, ", "), "duration", time.Since(start))
	time.Sleep(syncPeriod)
	again, _ := takeover.Find() // what it cannot find is no reason for an alarm
	if again.Device = false; !again.Empty() {
		s.log.Error("kube-proxy has written its rules again, so it runs on this node; stop it, and start Verdict again",
			"found", strings.Join(again.Names(), ", "))
	}
}

// remove removes what it finds, and returns its names.
func (s *successor) remove() ([]string, error) {
	found, err := takeover.Find()
	if found.Empty() {
		return nil, err
	}
	err = errors.Join(err, found.Remove())
	if kept := found.Kept(); err == nil && len(kept) > 0 {
		s.log.Warn("chains of kube-proxy stay, because rules of other software lead to them", "chains", strings.Join(kept, ", "))
	}
	if err == nil && found.Device {
		s.log.Warn("virtual servers of kube-proxy stay, because their connections would break; new connections do not use them; "+
			"restart the node when it is convenient", "device", takeover.Device)
	}
	return found.Names(), err
}
