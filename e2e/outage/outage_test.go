//go:build e2e

package outage

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// calm is how long rules are watched for a change that must not come.
const calm = 3 * time.Second

// TestServerKilled: rules stay while the API server is away, and follow when it is back.
func TestServerKilled(t *testing.T) {
	b := newBed(t)
	b.serve(t)
	for _, part := range []apiserver.Part{apiserver.Server, apiserver.Etcd} {
		lab.Must(t, b.plane.Kill(part))
		b.steady(t, calm)
		b.logged(t, "cannot read from the Kubernetes API")
		lab.Must(t, b.plane.Restart(part))
		b.create(t, "late", "")
		b.expect(t, "the new Service is served", func() bool { return b.has(t, "late") })
		b.remove(t, "late")
		b.expect(t, "it is gone", func() bool { return !b.has(t, "late") })
	}
}

// TestUpgrade: the API server becomes that of the folder in VERDICT_UPGRADE_TO, which "make e2e-skew" names. Meanwhile no
// connection fails and none is lost, and then the rules follow.
func TestUpgrade(t *testing.T) {
	b := newBed(t)
	b.serve(t)
	question := lab.Question{Protocol: lab.TCP, To: b.web(), Patience: 30 * time.Second}
	open, _ := b.At(t, "b").Hold(t, question)
	done, failed := make(chan struct{}), make(chan []lab.Result)
	go func() {
		var list []lab.Result
		for {
			select {
			case <-done:
				failed <- list
				return
			default:
			}
			if r := b.At(t, "b").Ask(question); r.Outcome != lab.Answered {
				list = append(list, r)
			}
		}
	}()
	before, err := b.plane.Client.Discovery().ServerVersion()
	lab.Must(t, err)
	lab.Must(t, b.plane.Upgrade(cmp.Or(os.Getenv("VERDICT_UPGRADE_TO"), programs.controlPlane)))
	after, err := b.plane.Client.Discovery().ServerVersion()
	lab.Must(t, err)
	t.Logf("the API server was %s and is %s", before, after)
	b.create(t, "late", "")
	b.expect(t, "the new Service is served", func() bool { return b.has(t, "late") })
	b.remove(t, "late")
	b.expect(t, "it is gone", func() bool { return !b.has(t, "late") })
	close(done)
	if list := <-failed; len(list) > 0 {
		t.Errorf("new connections failed during the upgrade: %v", list)
	}
	if r := open.Send(30 * time.Second); r.Outcome != lab.Answered {
		t.Errorf("after the upgrade, the open connection is %s", r)
	}
}

// TestRuleThatKeepsTheServerAway: while the daemon is stopped, another process adds a rule that drops the node's own
// packets. The next daemon removes it before it asks the API server.
func TestRuleThatKeepsTheServerAway(t *testing.T) {
	b := newBed(t)
	b.flags = []string{"--table-owner=off"}
	b.serve(t)
	lab.Must(t, b.daemon.Kill())
	b.create(t, "late", "")
	lab.Must(t, b.Node.Load("insert rule ip verdict services drop"))
	b.start(t)
	b.logged(t, "another process changed rules while Verdict did not run", "ip verdict services")
	b.expect(t, "the new Service is served", func() bool { return b.has(t, "late") })
	b.answers(t)
}

// TestRulesWhileTheServerIsAway: the API server cannot be reached when the daemon starts, and another process changes the
// tables. The daemon undoes what happens to rules and to tables as a whole at once: they may be what keeps the server away.
func TestRulesWhileTheServerIsAway(t *testing.T) {
	b := newBed(t)
	b.flags = []string{"--table-owner=off"}
	b.serve(t)
	lab.Must(t, b.daemon.Kill())
	lab.Must(t, b.plane.Kill(apiserver.Server))
	b.start(t)
	b.logged(t, "the rules in the kernel stay as an earlier process left them")
	for _, script := range []string{
		"add table ip verdict { flags dormant; }", "insert rule ip6 verdict services drop", "flush chain ip verdict nat-output",
	} {
		before := b.withoutElements(t)
		lab.Must(t, b.Node.Load(script))
		b.expect(t, "after \""+script+"\", the rules are as before", func() bool { return b.withoutElements(t) == before })
	}
	b.answers(t)
	lab.Must(t, b.plane.Restart(apiserver.Server))
	b.create(t, "late", "")
	b.expect(t, "the new Service is served", func() bool { return b.has(t, "late") })
}

// TestEtcdRestored: the API server loses some changes. The rules go back as well, whether the revisions of the restored
// etcd are soon past those that the daemon has seen, or long behind them.
func TestEtcdRestored(t *testing.T) {
	for name, ahead := range map[string]int{"soon overtaken": 0, "long behind": 2000} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			admin, err := b.plane.Kubeconfig(apiserver.Admin)
			lab.Must(t, err)
			b.kube = admin
			b.create(t, "deleted", "")
			b.start(t)
			b.expect(t, "all Services are served", func() bool { return len(b.rules(t)) == others+2 })
			lab.Must(t, b.plane.Save())
			b.remove(t, "deleted")
			b.revise(t, ahead)
			b.create(t, "lost", "")
			b.expect(t, "the rules follow", func() bool { return b.has(t, "lost") && !b.has(t, "deleted") })
			lab.Must(t, b.plane.Restore())
			began := time.Now()
			b.expect(t, "the rules go back", func() bool { return !b.has(t, "lost") && b.has(t, "deleted") })
			t.Logf("the rules are those of the restored state %v after the start of the API server", time.Since(began).Round(time.Second))
			b.create(t, "late", "")
			b.expect(t, "the rules follow again", func() bool { return b.has(t, "late") })
			b.answers(t)
		})
	}
}

// TestEmptyEtcd: all objects are lost. The rules stay until the API server has created its own Service again. Then the
// lists are those of a working cluster, and the rules follow.
func TestEmptyEtcd(t *testing.T) {
	b := newBed(t)
	b.serve(t)
	lab.Must(t, b.plane.Empty())
	b.expect(t, "the Services are gone", func() bool { return len(b.rules(t)) == 0 })
	b.create(t, "web", lab.MustText(lab.IPv4, "VIP1"))
	b.expect(t, "the rules follow", func() bool { return b.has(t, "web") })
	b.answers(t)
}
