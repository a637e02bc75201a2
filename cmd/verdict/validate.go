package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/source/shortform"
)

func newValidate() *cobra.Command {
	s := config.Default()
	s.IPVS.ExternalCIDR = []string{"0.0.0.0/0", "::/0"} // of the machine that will read the files, which this one need not be
	schema := false
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
	flags.BindBackend(cmd.Flags(), &s)
	flags.BindBudgets(cmd.Flags(), &s)
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
		if err := flags.Prepare(&s); err != nil {
			return err
		}
		return validate(&s, args, cmd.OutOrStdout())
	}
	return cmd
}

// validate plans what files have, and prints the Problems.
func validate(s *config.Settings, paths []string, out io.Writer) error {
	r, err := newRenderer(s, &renderOptions{assumeIPVS: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	r.addresses = []netip.Addr{}
	files := r.folder()
	if err := files.LoadFiles(paths); err != nil {
		return err
	}
	r.store.SetHostAddresses(nil)
	r.store.MarkSynced()
	if err := r.loop.Once(); err != nil {
		return err
	}
	lines := r.problems.lines(files)
	if _, err := io.WriteString(out, strings.Join(lines, "")); err != nil {
		return fmt.Errorf("write problems: %w", err)
	}
	if len(lines) > 0 {
		return fmt.Errorf("validate: %d problems in %q", len(lines), paths)
	}
	return nil
}

// lines returns the Problems with their places, in the order of files and lines.
func (p *problemPrinter) lines(files *manifests.Source) (lines []string) {
	type placed struct {
		manifests.Place
		text string
	}
	var all []placed
	for _, problems := range p.current {
		for _, problem := range problems {
			at := placed{files.Locate(problem), problem.Reason}
			if at.Object != "" {
				at.text = fmt.Sprintf("%s: %s: %s", at.Object, at.Field, problem.Reason)
			}
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.text, b.text))
	})
	for _, at := range all {
		lines = append(lines, fmt.Sprintf("%s:%d: %s\n", at.File, at.Line, at.text))
	}
	return lines
}
