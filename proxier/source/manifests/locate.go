package manifests

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/shortform"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// LoadFiles reads files, and all manifests of directories, in place of the directory that was read before. It returns an
// error if one of them does not exist. Nodes have Problems then, whatever their names.
func (m *Source) LoadFiles(paths []string) error {
	var names []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		m.Dir = path
		list, err := m.list()
		if err != nil {
			return fmt.Errorf("read manifest directory: %w", err)
		}
		for _, name := range list {
			names = append(names, filepath.Join(path, name))
		}
	}
	m.Dir = ""
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		m.refresh(name)
	}
	m.apply(names)
	for _, f := range m.files {
		for _, o := range f.objects {
			if o.id.kind == convert.KindNode {
				m.Store.SetProblems(convert.KindNode, o.id.name, o.problems)
			}
		}
	}
	return nil
}

// Place is where a Problem is.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Object string `json:"object,omitempty"` // its kind and name; "": the reason names it
	Field  string `json:"field,omitempty"`  // as the file has it
	Reason string `json:"reason"`
}

func (p Place) String() string {
	text := p.Reason
	if p.Object != "" {
		text = fmt.Sprintf("%s: %s: %s", p.Object, p.Field, p.Reason)
	}
	if p.File == "" {
		return text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, text)
}

// Locate returns the place of a Problem of this source's objects. It reads the file again.
func (m *Source) Locate(p state.Problem) Place {
	if p.Kind == convert.KindFile {
		at := Place{File: filepath.Join(m.Dir, p.Object.Name), Line: 1, Reason: p.Reason}
		_, _ = fmt.Sscanf(p.Field, "line %d", &at.Line)
		return at
	}
	id := objectID{kind: p.Kind, name: p.Object}
	o, is := m.inForce[id]
	if !is { // what is in force of it is in no file any more
		return Place{Object: id.String() + " in its previous form", Field: p.Field, Reason: p.Reason}
	}
	at := Place{File: filepath.Join(m.Dir, o.file), Line: o.line, Object: id.String(), Field: p.Field, Reason: p.Reason}
	if o.short {
		at.Object = shortform.Kind + " " + id.name.String()
	}
	at.Line += lineInside(at.File, o.line, at.Field)
	return at
}

// Places returns the places of Problems in the order of files and lines.
func (m *Source) Places(problems []state.Problem) []Place {
	list := []Place{}
	for _, p := range problems {
		list = append(list, m.Locate(p))
	}
	slices.SortFunc(list, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.String(), b.String()))
	})
	return list
}

// lineInside returns how many lines after the beginning of its document a field is.
func lineInside(file string, begin int, field string) int {
	data, err := readFile(file, 0)
	if err != nil {
		return 0
	}
	docs, _ := documents(file, data)
	for _, doc := range docs {
		if doc.line != begin {
			continue
		}
		if parsed, err := shortform.Parse(doc.source()); err == nil {
			return parsed.Line(field) - 1
		}
	}
	return 0
}
