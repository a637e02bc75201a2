package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// snapshotVersion is part of the names of snapshots. Increase it when their contents change.
const snapshotVersion = "v1"

// snapshots keeps etcd folders with prepared clusters. Creating 10,000 Services through an API server takes minutes,
// and 50,000 would take hours, because each Service costs more the more of them exist. So an API server creates only
// one object of each kind. All others are copies of the stored objects, which snapshots writes into etcd directly.
type snapshots struct {
	binaries string
	cache    string
	fetched  *templates
}

// prepare copies a prepared cluster of a size into the data folder of an etcd that will be started.
func (s *snapshots) prepare(services int, dir string) error {
	kept := filepath.Join(s.cache, fmt.Sprintf("etcd-%s-%d", snapshotVersion, services))
	if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
		if err := s.make(services, kept); err != nil {
			return fmt.Errorf("prepare a cluster of %d Services: %w", services, err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "etcd"), os.DirFS(kept)); err != nil {
		return fmt.Errorf("copy the prepared cluster: %w", err)
	}
	return os.Chmod(filepath.Join(dir, "etcd"), 0o700)
}

// make writes a snapshot into a temporary folder and renames it, so that an incomplete snapshot is never used.
func (s *snapshots) make(services int, kept string) (err error) {
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(s.cache, "part-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if s.fetched == nil {
		if s.fetched, err = fetchTemplates(s.binaries, s.cache); err != nil {
			return err
		}
	}
	if err := s.fill(services, work); err != nil {
		return err
	}
	return os.Rename(filepath.Join(work, "etcd"), kept)
}

// fill runs an etcd without an API server and writes all objects into it.
func (s *snapshots) fill(services int, dir string) (err error) {
	ns, err := lab.NewNamespace("snapshot")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	process, err := lab.NewProcess(lab.ProcessOptions{Name: "etcd", Namespace: ns, Dir: dir, Command: []string{
		filepath.Join(s.binaries, "etcd"), "--data-dir=" + filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380",
	}})
	if err != nil {
		return err
	}
	store := newEtcd(ns)
	err = store.ready()
	for i := 0; i < services && err == nil; i += perTransaction {
		err = s.write(store, i, min(i+perTransaction, services))
	}
	if err != nil {
		return errors.Join(err, process.Kill())
	}
	// etcd saves its data and then ends itself with the same signal. lab.Process would report that as a failure.
	if err := unix.Kill(process.PID(), unix.SIGTERM); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	<-process.Exited()
	return process.Kill() // closes its log
}

// perTransaction is the number of Services in one transaction. Each is three objects, and etcd allows 128 operations.
const perTransaction = 40

func (s *snapshots) write(store *etcd, from, to int) error {
	var all []stored
	for i := from; i < to; i++ {
		list, err := s.fetched.objects(i)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	return store.put(all)
}

// fetchTemplates creates one object of each kind through an API server, and reads the stored objects from etcd.
func fetchTemplates(binaries, cache string) (t *templates, err error) {
	dir, err := os.MkdirTemp(cache, "templates-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := newPlane(binaries, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := createOne(p.client()); err != nil {
		return nil, err
	}
	t = &templates{service: &corev1.Service{}, slice: &discoveryv1.EndpointSlice{}, address: &networkingv1.IPAddress{}}
	store := newEtcd(p.ns)
	return t, errors.Join(
		store.template("services/specs/default/"+serviceName(0), t.service),
		store.template("endpointslices/default/"+sliceName(0), t.slice),
		store.template("ipaddresses/"+serviceIP(0).String(), t.address),
	)
}

func createOne(client kubernetes.Interface) error {
	ctx := context.Background()
	if _, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, newService(0), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a Service: %w", err)
	}
	if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, newSlice(0), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create an EndpointSlice: %w", err)
	}
	return nil
}

// etcd is a client of an etcd inside a namespace. It uses the JSON gateway.
type etcd struct{ client *http.Client }

func newEtcd(ns *lab.Namespace) *etcd {
	return &etcd{&http.Client{Transport: &http.Transport{DialContext: ns.DialContext}, Timeout: time.Minute}}
}

func (e *etcd) call(method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := e.client.Post("http://127.0.0.1:2379/v3/"+method, "application/json", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("etcd %s: %s: %.200s", method, r.Status, text), err)
	}
	return json.Unmarshal(text, answer)
}

// ready waits until etcd answers.
func (e *etcd) ready() (err error) {
	for range 200 {
		var answer struct{}
		if err = e.call("kv/range", map[string][]byte{"key": []byte("/")}, &answer); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("etcd does not answer: %w", err)
}

// put writes objects in one transaction.
func (e *etcd) put(list []stored) error {
	type operation struct {
		RequestPut map[string][]byte `json:"requestPut"`
	}
	var request struct {
		Success []operation `json:"success"`
	}
	for _, o := range list {
		request.Success = append(request.Success, operation{map[string][]byte{"key": []byte(o.key), "value": o.value}})
	}
	var answer struct{ Succeeded bool }
	if err := e.call("kv/txn", request, &answer); err != nil {
		return err
	}
	if !answer.Succeeded {
		return errors.New("etcd refused a transaction")
	}
	return nil
}

// template reads a stored object.
func (e *etcd) template(key string, into runtime.Object) error {
	var answer struct {
		KVs []struct{ Value []byte }
	}
	if err := e.call("kv/range", map[string][]byte{"key": []byte("/registry/" + key)}, &answer); err != nil {
		return err
	}
	if len(answer.KVs) != 1 {
		return fmt.Errorf("etcd has no %s", key)
	}
	return readTemplate(answer.KVs[0].Value, into)
}
