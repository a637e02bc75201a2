package main

import (
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
	for n := 1; ; n++ {
		err := s.remove()
		if err == nil {
			break
		}
		if n == attempts {
			s.log.Error("cannot remove what kube-proxy left; its rules stay beside those of Verdict and get out of date; "+
				"remove them with \"kube-proxy --cleanup\", or restart the node", "error", oneLine(err))
			return
		}
		time.Sleep(time.Duration(n) * 200 * time.Millisecond)
	}
	time.Sleep(syncPeriod)
	if again, _ := takeover.Find(); !again.Empty() {
		s.log.Error("kube-proxy has written its rules again, so it runs on this node; stop it and start Verdict again",
			"found", strings.Join(again.Names(), ", "))
	}
}

func (s *successor) remove() error {
	found, err := takeover.Find()
	if found.Empty() {
		if err == nil {
			s.log.Info("kube-proxy left nothing on this node")
		}
		return err
	}
	start := time.Now()
	if err := found.Remove(); err != nil {
		return err
	}
	s.log.Info("took over from kube-proxy; its rules are removed", "removed", strings.Join(found.Names(), ", "), "duration", time.Since(start))
	if kept := found.Kept(); len(kept) > 0 {
		s.log.Warn("chains of kube-proxy stay, because rules of other software lead to them", "chains", strings.Join(kept, ", "))
	}
	if found.Device {
		s.log.Warn("virtual servers of kube-proxy stay, so that their connections live on; "+
			"remove them with \"kube-proxy --cleanup\" or restart the node when it is convenient", "device", takeover.Device)
	}
	return err
}
