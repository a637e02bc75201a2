// Command workload runs in the pods of the end-to-end cluster.
//
//	workload serve NAME              answers over TCP and UDP
//	workload reply [flags] NAME      answers each TCP connection once, and exits at once when it is told to end
//	workload rate [flags] TARGET...  connects to addresses at a fixed rate, and returns all connections on its port
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Ports of the pods.
const (
	servePort = 8080
	openPort  = 8081 // connections stay open
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
	case len(args) > 1 && args[0] == "reply":
		return reply(args[1:])
	case len(args) > 1 && args[0] == "rate":
		return connect(args[1:])
	}
	return errors.New("run it as \"workload serve NAME\", \"reply [flags] NAME\" or \"rate [flags] TARGET\"")
}

// reply is an application that knows nothing of Kubernetes: on SIGTERM, it exits. With "finish", it closes its listener
// and answers the connections that it has accepted before that.
func reply(args []string) error {
	flags := flag.NewFlagSet("reply", flag.ExitOnError)
	finish := flags.Bool("finish", false, "answer accepted connections before the end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: servePort})
	if err != nil {
		return fmt.Errorf("serve TCP: %w", err)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	go func() {
		<-end
		if !*finish {
			os.Exit(0)
		}
		_ = listener.Close() // Serve says so
	}()
	if err := rate.Serve(listener, flags.Arg(0)); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// connect runs a client at a fixed rate.
func connect(args []string) error {
	flags := flag.NewFlagSet("rate", flag.ExitOnError)
	c := &rate.Client{}
	flags.IntVar(&c.PerSecond, "per-second", 200, "connections a second")
	flags.DurationVar(&c.Patience, "patience", 5*time.Second, "how long a connection may take")
	flags.BoolVar(&c.Sequential, "sequential", false, "leave a target out while a connection to it is under way")
	at := flags.String("listen", fmt.Sprintf(":%d", countPort), "where to return the connections")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, text := range flags.Args() {
		target, err := rate.ParseTarget(text)
		if err != nil {
			return err
		}
		c.Targets = append(c.Targets, target)
	}
	go c.Run(context.Background())
	return (&http.Server{Addr: *at, ReadHeaderTimeout: 10 * time.Second, Handler: c}).ListenAndServe()
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
	open, err := net.ListenTCP("tcp", &net.TCPAddr{Port: openPort})
	if err != nil {
		return fmt.Errorf("serve TCP: %w", err)
	}
	go lab.Accept(open, name, openPort)
	go lab.Reply(conn, name, servePort)
	return rate.Serve(listener, name)
}
