package snapshot

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// maxCompletions bounds what the shell has to show.
const maxCompletions = 500

// CompleteNames completes the names of namespaces and Services, from the frontends in the kernel.
func CompleteNames(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return ServiceNames(begin), cobra.ShellCompDirectiveNoFileComp
}

// ServiceNames lists the Services (namespace/name) that begin with a text. Without a slash in the text, it lists
// namespaces as well. The daemon answers faster; ports of Services are in the kernel.
func ServiceNames(begin string) []string {
	names := completions{begin: begin, names: map[string]bool{}}
	if list, err := socket.NewClient().Names(begin); err == nil && !strings.Contains(begin, ":") {
		for _, name := range list {
			names.add(name)
		}
		return slices.Sorted(maps.Keys(names.names))
	}
	_, err := inspect.Counters(kernel.Options{}, func(name string) bool {
		names.add(name)
		return false
	})
	if err != nil {
		return nil // the shell has no place for errors
	}
	return slices.Sorted(maps.Keys(names.names))
}

// completions are names that begin with a text.
type completions struct {
	begin string
	names map[string]bool
}

// add adds a Service or a Service port, and its namespace.
func (c *completions) add(name string) {
	if !strings.HasPrefix(name, c.begin) || len(c.names) >= maxCompletions {
		return
	}
	service, _, _ := strings.Cut(name, ":")
	if strings.Contains(c.begin, ":") {
		service = name
	}
	c.names[service] = true
	if namespace, _, ok := strings.Cut(name, "/"); ok && !strings.Contains(c.begin, "/") {
		c.names[namespace] = true
	}
}
