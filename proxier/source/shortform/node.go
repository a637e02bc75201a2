package shortform

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is a document with the line of each field.
type Document struct{ root *yaml.Node }

// Parse reads one document in YAML or JSON.
func Parse(text []byte) (Document, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" ")) // YAML has no tabs there, and a text of JSON has none either
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return Document{}, fmt.Errorf("read a document: %w", err)
	}
	if n.Kind != yaml.DocumentNode {
		return Document{}, fmt.Errorf("read a document: it is empty")
	}
	return Document{root: n.Content[0]}, nil
}

// Line returns the line of a field such as spec.ports[0].port, or of the nearest field around it that the document has.
// The first line is 1.
func (d Document) Line(field string) int {
	at, line := d.root, d.root.Line
	for field != "" {
		var step string
		step, field = nextStep(field)
		key, child := childOf(at, step)
		if child == nil {
			break
		}
		at, line = child, key.Line
	}
	return line
}

// nextStep cuts the first part of a path. A key in brackets may have dots.
func nextStep(path string) (step, rest string) {
	if inside, ok := strings.CutPrefix(path, "["); ok {
		step, rest, _ = strings.Cut(inside, "]")
		return step, strings.TrimPrefix(rest, ".")
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, ""
	}
	return path[:end], strings.TrimPrefix(path[end:], ".")
}

// childOf returns a value of a mapping or a list, and the node where it begins.
func childOf(n *yaml.Node, step string) (key, child *yaml.Node) {
	n = resolved(n)
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
