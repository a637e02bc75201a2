//go:build man

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// furtherCommands has the command "man DIR", which writes the man pages. It is no part of the ordinary binary, because of what
// it links.
func furtherCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use: "man DIR", Short: "Write man pages into a folder", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return writeManPages(cmd.Root(), args[0]) },
	}}
}

func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write man pages: %w", err)
	}
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0: without it
	date := time.Unix(seconds, 0).UTC()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "VERDICT", Section: "8", Source: "Verdict", Date: &date}, dir); err != nil {
		return fmt.Errorf("write man pages into %s: %w", dir, err)
	}
	return nil
}
