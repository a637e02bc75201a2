package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// nodes are answers of nodes a, b and so on.
func nodes(texts ...string) (list []answer) {
	for i, text := range texts {
		a := answer{daemon: daemon{node: string(rune('a' + i))}, stdout: text}
		if text == "" {
			a.err = errors.New("no answer within 10s")
		}
		list = append(list, a)
	}
	return list
}

func TestPrintSame(t *testing.T) {
	for _, c := range []struct {
		what, want string
		answers    []answer
		differs    bool
	}{
		{"all the same", "all 3 nodes:\n  yes\n", nodes("yes", "yes", "yes"), false},
		{"one node", "a:\n  yes\n", nodes("yes"), false},
		{"one differs", "a, c:\n  yes\nb:\n  no\n", nodes("yes", "no", "yes"), true},
		{"many", "5 of 6 nodes:\n  yes\nf:\n  no\n", nodes("yes", "yes", "yes", "yes", "yes", "no"), true},
		{"one does not answer", "a:\n  yes\nb does not answer: no answer within 10s\n", nodes("yes", ""), true},
	} {
		var out bytes.Buffer
		err := (&fleet{out: &out}).printSame(c.answers, func(a answer) string { return a.stdout })
		if out.String() != c.want || errors.Is(err, errDiffers) != c.differs {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.what, err, out.String(), c.want)
		}
	}
}

// TestTable: rows of nodes that say the same are one line, and a node without the row is named.
func TestTable(t *testing.T) {
	rows := table{}
	rows.add("TCP 10.96.0.1:80  shop/web", "a", "nft random 10.0.1.1:8080")
	rows.add("TCP 10.96.0.1:80  shop/web", "b", "nft random 10.0.1.1:8080")
	rows.add("TCP 10.96.0.2:80  shop/db", "a", "nft random 10.0.1.2:8080")
	var out bytes.Buffer
	differs := rows.print(&fleet{out: &out}, []string{"a", "b"})
	want := "TCP 10.96.0.1:80  shop/web  nft random 10.0.1.1:8080\nTCP 10.96.0.2:80  shop/db\n  a: nft random 10.0.1.2:8080\n  b: not there\n"
	if out.String() != want || !differs {
		t.Errorf("differs %v:\n%swant\n%s", differs, out.String(), want)
	}
}

func TestDecode(t *testing.T) {
	a := nodes("no JSON")[0]
	a.code, a.stderr = 1, "verdict: run this command as root\n"
	if decode(&a, &listing{}) || a.err == nil || !strings.Contains(a.err.Error(), "run this command as root") {
		t.Errorf("an error of the node is %v", a.err)
	}
}

// TestListing: what is counted makes no difference; what a client notices does.
func TestListing(t *testing.T) {
	row := func(total int, bad bool) string {
		var l listing
		text := fmt.Sprintf(`{"frontends": [{"service": "shop/web:http", "protocol": "tcp", "family": "IPv4", "address": "10.96.0.1", "port": 80, "engine": "nft",
			"scheduler": "random", "connectionsTotal": %d, "endpoints": [{"address": "10.0.1.1", "port": 8080, "weight": 1, "active": %[1]d, "bad": %v}]}]}`, total, bad)
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		return l.Frontends[0].name() + "|" + l.Frontends[0].text()
	}
	if got, want := row(1, false), "tcp 10.96.0.1:80  shop/web:http|nft random 10.0.1.1:8080"; got != want || row(2, false) != want {
		t.Errorf("%q and %q, want %q", got, row(2, false), want)
	}
	if got, want := row(1, true), "tcp 10.96.0.1:80  shop/web:http|nft random 10.0.1.1:8080 (bad)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSilent(t *testing.T) {
	bad := `{"frontends": [{"service": "shop/web:http", "endpoints": [{"address": "10.0.1.1", "port": 8080, "bad": true}]}]}`
	good := strings.Replace(bad, "true", "false", 1)
	var out bytes.Buffer
	(&fleet{out: &out}).printSilent(nodes(good, bad, good, ""))
	if want := "endpoint 10.0.1.1:8080 of shop/web:http: does not answer 1 of 3 nodes: b\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	(&fleet{out: &out}).printSilent(nodes(bad, bad))
	if want := "endpoint 10.0.1.1:8080 of shop/web:http: does not answer 2 of 2 nodes: all 2 nodes\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestFlagsOf: diff has the flags of the daemon, as the kubelet expands them.
func TestFlagsOf(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "verdict-x"}, Spec: corev1.PodSpec{NodeName: "node-7", Containers: []corev1.Container{{
		Name: "verdict", Args: []string{"run", "--config=/etc/verdict/config.conf", "--hostname-override=$(NODE_NAME)", "--v=$(LEVEL)"},
		Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}, {Name: "LEVEL", Value: "2"}},
	}}}}
	if got, want := flagsOf(p), []string{"--config=/etc/verdict/config.conf", "--hostname-override=node-7", "--v=2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDiffListsOnce: diff runs several commands on each node, and lists the pods once.
func TestDiffListsOnce(t *testing.T) {
	var lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system/pods" {
			http.NotFound(w, r)
			return
		}
		lists.Add(1)
		w.Header().Set("Content-Type", "application/json")
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "verdict-x"}, Spec: corev1.PodSpec{NodeName: "node-7"}}}}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	var out bytes.Buffer
	f := &fleet{config: &rest.Config{Host: server.URL}, daemons: "kube-system", timeout: time.Minute, out: &out}
	f.client = kubernetes.NewForConfigOrDie(f.config)
	if err := f.diff(t.Context(), false); !errors.Is(err, errDiffers) || !strings.HasPrefix(out.String(), "node-7 does not answer: ") || lists.Load() != 1 {
		t.Errorf("the pods were listed %d times, and diff ends with %v:\n%s", lists.Load(), err, out.String())
	}
}
