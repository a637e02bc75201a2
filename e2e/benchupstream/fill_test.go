package benchupstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// perTransaction is the number of Services in one transaction. Each is three objects, and etcd allows 128 operations.
const perTransaction = 40

// fill creates Services with their slices. Creating 10,000 Services through an API server takes minutes, and 50,000 would
// take hours, because each Service costs more the more of them exist. So the API server has created only one object of each
// kind. All others are copies of the stored objects, which fill writes into etcd directly.
func fill(p *plane) error {
	store := newEtcd(p.ns)
	services := p.services
	t := &templates{shape: p.shape, service: &corev1.Service{}, slice: &discoveryv1.EndpointSlice{}, address: &networkingv1.IPAddress{}}
	err := errors.Join(
		store.template("services/specs/default/"+serviceName(0), t.service),
		store.template("endpointslices/default/"+sliceName(0), t.slice),
		store.template("ipaddresses/"+serviceIP(0).String(), t.address),
	)
	for i := 1; i < services && err == nil; i += perTransaction {
		var all []stored
		for j := i; j < min(i+perTransaction, services) && err == nil; j++ {
			var list []stored
			list, err = t.objects(j)
			all = append(all, list...)
		}
		err = errors.Join(err, store.put(all))
	}
	return errors.Join(err, cached(p.client(), services))
}

// cached waits until the watch caches of the API server have the last object of each kind. Lists come from these caches.
func cached(client kubernetes.Interface, services int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	anyVersion := metav1.GetOptions{ResourceVersion: "0"}
	for ctx.Err() == nil {
		_, err = client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, serviceName(services-1), anyVersion)
		if err == nil {
			_, err = client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, sliceName(services-1), anyVersion)
		}
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the API server does not serve what etcd has: %w", err)
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
