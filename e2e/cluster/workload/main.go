// Command workload runs in the pods of the end-to-end cluster.
//
//	workload serve NAME              answers over TCP and UDP
//	workload ask [flags] TARGET...   connects to Services in loops, and says on its port what became of the connections
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/load"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Ports of the pods.
const (
	servePort = 8080
	countPort = 9000
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) > 1 && args[0] == "ask":
		return ask(args[1:])
	}
	return errors.New("run it as \"workload serve NAME\" or \"workload ask [flags] TARGET\"")
}

func serve(name string) error {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: servePort})
	if err != nil {
		return fmt.Errorf("serve UDP: %w", err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: servePort})
	if err != nil {
		return fmt.Errorf("serve TCP: %w", err)
	}
	go lab.Reply(conn, name, servePort)
	lab.Accept(listener, name, servePort)
	return nil
}

func ask(args []string) error {
	flags := flag.NewFlagSet("ask", flag.ExitOnError)
	o := load.Options{Open: lab.OpenAndAsk}
	flags.DurationVar(&o.Pause, "pause", 50*time.Millisecond, "time between two connections to a target")
	flags.DurationVar(&o.Patience, "patience", 5*time.Second, "how long a client waits")
	flags.BoolVar(&o.Sequential, "sequential", false, "wait for the end of a connection before the next one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var targets []load.Target
	for _, text := range flags.Args() {
		t, err := load.Parse(text)
		if err != nil {
			return err
		}
		targets = append(targets, t)
	}
	loops := load.Start(targets, o)
	server := &http.Server{
		Addr: fmt.Sprintf(":%d", countPort), ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(loops.Counts()); err != nil {
				fmt.Fprintln(os.Stderr, "workload: answer with the counts:", err)
			}
		}),
	}
	return server.ListenAndServe()
}
