package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// fleet is the daemons of a cluster.
type fleet struct {
	config     *rest.Config
	client     kubernetes.Interface
	namespace  string // of names without one
	daemons    string // the namespace of the DaemonSet
	only       []string
	timeout    time.Duration
	parallel   int
	out, notes io.Writer
}

// daemon is the Verdict of a node.
type daemon struct {
	node, pod string
	flags     []string // of "verdict run"
}

// answer is what a command printed on a node.
type answer struct {
	daemon
	stdout, stderr string
	code           int
	err            error // the node could not be asked
}

const container = "verdict"

// nodes lists the daemons that are to be asked, sorted by node.
func (f *fleet) nodes(ctx context.Context) ([]daemon, error) {
	pods, err := f.client.CoreV1().Pods(f.daemons).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=verdict"})
	if err != nil {
		return nil, fmt.Errorf("list the pods of Verdict in %s: %w", f.daemons, err)
	}
	var list []daemon
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil && (len(f.only) == 0 || slices.Contains(f.only, p.Spec.NodeName)) {
			list = append(list, daemon{node: p.Spec.NodeName, pod: p.Name, flags: flagsOf(p)})
		}
	}
	for _, name := range f.only {
		if !slices.ContainsFunc(list, func(d daemon) bool { return d.node == name }) {
			return nil, fmt.Errorf("no pod of Verdict runs on the node %s", name)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no pod in %s has the label app.kubernetes.io/name=verdict; see --daemon-namespace", f.daemons)
	}
	slices.SortFunc(list, func(a, b daemon) int { return cmp.Compare(a.node, b.node) })
	return list, nil
}

// flagsOf returns the flags of the daemon in a pod, with the names of fields of the pod as the kubelet expands them.
func flagsOf(p *corev1.Pod) (flags []string) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if c.Name != container {
			continue
		}
		for _, arg := range c.Args {
			for _, e := range c.Env {
				value := e.Value
				if from := e.ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName" {
					value = p.Spec.NodeName
				}
				arg = strings.ReplaceAll(arg, "$("+e.Name+")", value)
			}
			if strings.HasPrefix(arg, "-") {
				flags = append(flags, arg)
			}
		}
	}
	return flags
}

// ask runs a command on all nodes, some nodes at a time.
func (f *fleet) ask(ctx context.Context, command func(daemon) []string) ([]answer, error) {
	answers, err := f.askAll(ctx, command)
	return answers[0], err
}

// askAll runs commands on all nodes. It returns the answers to each command, by node.
func (f *fleet) askAll(ctx context.Context, commands ...func(daemon) []string) ([][]answer, error) {
	answers := make([][]answer, len(commands))
	list, err := f.nodes(ctx)
	if err != nil {
		return answers, err
	}
	for i := range answers {
		answers[i] = make([]answer, len(list))
	}
	var nodes errgroup.Group
	nodes.SetLimit(max(f.parallel, 1))
	done := f.progress(len(list))
	for i, d := range list {
		nodes.Go(func() error {
			var running sync.WaitGroup
			for j, command := range commands {
				running.Go(func() { answers[j][i] = f.run(ctx, d, command(d)) })
			}
			running.Wait()
			done()
			return nil
		})
	}
	return answers, nodes.Wait() // an answer has its own error
}

// run runs "verdict" in the pod of a node.
func (f *fleet) run(ctx context.Context, d daemon, args []string) answer {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	defer cancel()
	a := answer{daemon: d}
	request := f.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.daemons).Name(d.pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: append([]string{"/verdict"}, args...), Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	var stdout, stderr bytes.Buffer
	ended := make(chan error, 1)
	go func() { // a connection to a node that stands still does not end with the context
		executor, err := remotecommand.NewWebSocketExecutor(f.config, "GET", request.URL().String())
		if err == nil {
			err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
		}
		ended <- err
	}()
	select {
	case a.err = <-ended:
		a.stdout, a.stderr = stdout.String(), stderr.String()
	case <-ctx.Done():
		a.err = context.Cause(ctx)
	}
	if exit, ok := errors.AsType[exec.CodeExitError](a.err); ok {
		a.code, a.err = exit.Code, nil
	}
	return a
}

// progress returns what to call when a node has answered. It says on a terminal how many have.
func (f *fleet) progress(all int) (one func()) {
	var mu sync.Mutex
	done := 0
	file, ok := f.notes.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if done++; terminal && done < all {
			fmt.Fprintf(file, "\r[%-20s] %d of %d nodes", strings.Repeat("#", 20*done/all), done, all)
		} else if terminal {
			fmt.Fprint(file, "\r\x1b[K")
		}
	}
}
