package list

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/nft"
)

// maxCompletions bounds what the shell has to show.
const maxCompletions = 500

// CompleteNames completes the names of namespaces and Services, from the frontends in the kernel.
func CompleteNames(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return ServiceNames(begin), cobra.ShellCompDirectiveNoFileComp
}

// ServiceNames lists the Services (namespace/name) in the kernel that begin with a text. Without a slash in the text,
// it lists namespaces as well.
func ServiceNames(begin string) []string {
	names := map[string]bool{}
	_, err := nft.Counters(nft.Options{}, func(name string) bool {
		if !strings.HasPrefix(name, begin) || len(names) >= maxCompletions {
			return false
		}
		service, _, _ := strings.Cut(name, ":")
		if strings.Contains(begin, ":") {
			service = name
		}
		names[service] = true
		if namespace, _, ok := strings.Cut(name, "/"); ok && !strings.Contains(begin, "/") {
			names[namespace] = true
		}
		return false
	})
	if err != nil {
		return nil // the shell has no place for errors
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
