package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// usage says how to start the demo. The other form is for the process that the demo starts inside namespaces.
const usage = "usage: demo VERDICT"

// exitError is an error with an exit code of its own. Without a cause, nothing is printed.
type exitError struct {
	error
	code int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	code, ended := 1, exitError{}
	if errors.As(err, &ended) {
		err, code = ended.error, ended.code
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", strings.ReplaceAll(err.Error(), "\n", "; "))
	} else if ended.code == 0 {
		code = 0
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (err error) {
	switch {
	case len(args) == 1:
		return runOutside(ctx, args[0])
	case len(args) != 4 || args[1] != inside:
		return exitError{errors.New(usage), 2}
	}
	st := &story{out: os.Stdout, how: args[3], backends: []string{"pod-a", "pod-b", "pod-c"}}
	if st.verdict, st.dir, err = enter(args[0], args[2]); err != nil {
		return err
	}
	return st.tell()
}
