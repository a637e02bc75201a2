//go:build !man

package main

import "github.com/spf13/cobra"

// furtherCommands are those that a build tag adds.
func furtherCommands() []*cobra.Command { return nil }
