package list

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// print prints an answer as text, JSON or YAML.
func (g *getter) print(a *answer) error {
	out := g.cmd.OutOrStdout()
	switch g.output {
	case outputJSON:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(a)
	case outputYAML:
		text, err := yaml.Marshal(a)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	a.writeText(out)
	return nil
}

func (a *answer) writeText(out io.Writer) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-9s %s\n", name, value)
		}
	}
	line("Pool", a.Pool)
	line("Service", a.Service)
	line("Class", a.Class)
	if a.Client.IsValid() {
		line("Client", a.Client.String())
		line("Endpoint", a.Endpoint)
		line("Expires", fmt.Sprintf("in %.0f s", a.Expires))
	}
	if a.Stale {
		line("Endpoint", "gone; the next connection gets another one")
	}
	for i := range a.Endpoints {
		e := &a.Endpoints[i]
		line("Endpoint", fmt.Sprintf("%s weight %d", e.at(), e.Weight))
	}
}
