package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/verdict-proxy/verdict/cmd/verdict/daemon"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/loopback"
	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/config"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Version: thisBuild().version, // kube-proxy has the flag --version
		Short:   "Run the proxy of this node",
		Long: `Run the proxy of this node until SIGTERM or SIGINT. The rules stay in the kernel when the proxy stops, and
"verdict cleanup" removes them. Flags that kube-proxy has as well have the same names. SIGHUP has the proxy read its files
again. Under systemd, it reports when its rules are in the kernel, serves the watchdog, and shows what it does (sd_notify).`,
		Args: flags.None,
	}
	c := flags.New(cmd.Flags())
	cleanup := cmd.Flags().Bool("cleanup", false, "remove everything that Verdict has created in the kernel, and exit")
	initOnly := cmd.Flags().Bool("init-only", false,
		"set the sysctls and load the kernel modules, which only root may do, and exit; the daemon then needs only NET_ADMIN")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hangups := make(chan os.Signal, 1) // without a channel for it, SIGHUP ends the process
		signal.Notify(hangups, syscall.SIGHUP)
		if err := c.Resolve(); err != nil {
			return err
		}
		log := logging.New(cmd.ErrOrStderr(), &c.Settings)
		klog.SetSlogLogger(log)
		c.Warn(log)
		switch {
		case *cleanup:
			return cleanUp(cmd.Context(), 0, log)
		case *initOnly:
			return initHost(&c.Settings, log)
		case c.WriteTo != "":
			return c.Write()
		}
		b := thisBuild()
		err := daemon.Run(cmd.Context(), daemon.Options{CommandLine: c, Hangups: hangups, Version: b.version, Revision: b.revision, Log: log})
		if err == nil && c.CleanupOnExit { // after an error, the next process needs what is in the kernel
			log.Info("stopped; removing everything from the kernel (--cleanup-on-exit)")
			return cleanUp(context.WithoutCancel(cmd.Context()), 0, log)
		}
		log.Info("stopped; the rules stay in the kernel")
		if errors.Is(err, daemon.ErrDrained) { // they still translate open connections
			return nil
		}
		return err
	}
	return cmd
}

// initHost sets the sysctls and loads the modules that the daemon needs.
func initHost(s *config.Settings, log *slog.Logger) error {
	new(nodesetup.Host).Apply(&s.Node, log)
	ipvs.SetLiberal(s.Node.Conntrack.TCPBeLiberal, log)
	if err := loopback.Set(s, log); err != nil {
		return err
	}
	engine, _, err := ipvs.Open(s, log)
	if engine != nil {
		engine.Close()
	}
	return err
}
