package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/dryrun"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func newValidate() *cobra.Command {
	schema, o := false, flags.Output{}
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Say what is wrong in manifests",
		Long: `Read manifests as "verdict run --manifests" does, all together, and plan them for a machine with IPVS and without addresses
of its own. Print what is wrong with file, line and field, and exit with status 1 if anything is. Give the flags with
which the manifests will be run.`,
		Example: `  verdict validate /etc/verdict/manifests
  verdict validate --schema > loadbalancer.schema.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !schema {
				return flags.Wrong(errors.New("validate needs files or folders"))
			}
			return nil
		},
	}
	c := flags.New(cmd.Flags())
	s := &c.Settings
	s.IPVS.ExternalCIDR = []string{"0.0.0.0/0", "::/0"} // of the machine that will read the files, which this one need not be
	o.Bind(cmd.Flags())
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of the short form, for editors")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if schema {
			text, err := shortform.Schema()
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		}
		s.Manifests = args[0]
		if err := c.Resolve(); err != nil {
			return err
		}
		r, err := dryrun.New(s, &dryrun.Options{AssumeIPVS: true}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		list, err := r.Validate(args)
		if err != nil {
			return err
		}
		noteIgnored(cmd, args...)
		err = o.Write(cmd.OutOrStdout(), list, func(out io.Writer) error { return writeLines(out, list) })
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("validate: %s in %q", state.Plural(len(list), "problem"), args)
		}
		return err
	}
	return cmd
}

// noteIgnored names files that have no effect because of their names.
func noteIgnored(cmd *cobra.Command, paths ...string) {
	for _, name := range manifests.Ignored(paths...) {
		fmt.Fprintf(cmd.ErrOrStderr(), "verdict: %s is no manifest, because its name does not end in .yaml, .yml or .json\n", name)
	}
}

func writeLines[T any](out io.Writer, list []T) error {
	for i := range list {
		if _, err := fmt.Fprintln(out, list[i]); err != nil {
			return fmt.Errorf("write problems: %w", err)
		}
	}
	return nil
}
