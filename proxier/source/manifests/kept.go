package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// beginning is what the source knows about the start of the process. A manifest that cannot be read then must not end what it
// defines. So the source copies each file that has no fault, and objects of the copies that no manifest defines stay in force
// until all manifests can be read.
type beginning struct {
	over     bool                // the directory was read once
	waiting  bool                // nothing is in force until all manifests can be read
	dangling []string            // links without a target
	kept     map[objectID]object // of the copies: what no manifest has defined since the start
}

func (b *beginning) keeps() bool { return len(b.kept) > 0 }

// hold begins to keep the objects of the copies if the kernel serves any. Without a copy, it reports that the source must
// wait: an earlier version wrote what the kernel has, and only the manifests say what that is.
func (m *Source) hold() (wait bool, err error) {
	if m.Serving == nil {
		return false, nil
	}
	if serving, err := m.Serving(); err != nil || !serving {
		return false, err
	}
	copies, err := os.ReadDir(m.Copies)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	m.begin.kept = map[objectID]object{}
	for _, e := range copies {
		if !manifestName(e.Name()) {
			continue // an earlier process has ended while it wrote a copy
		}
		data, readErr := os.ReadFile(filepath.Join(m.Copies, e.Name()))
		err = errors.Join(err, readErr)
		for _, o := range decodeFile(m.convert, e.Name(), data).objects {
			if _, twice := m.begin.kept[o.id]; !twice {
				m.begin.kept[o.id] = o
			}
		}
	}
	if err != nil {
		return false, fmt.Errorf("read copies of manifests: %w", err)
	}
	return false, nil
}

// missing returns what is kept. What a file has defined once is not kept any more.
func (b *beginning) missing(defined map[objectID]definition) []object {
	maps.DeleteFunc(b.kept, func(id objectID, _ object) bool {
		_, is := defined[id]
		return is
	})
	return slices.SortedFunc(maps.Values(b.kept), func(a, b object) int {
		return cmp.Or(strings.Compare(a.id.kind, b.id.kind), a.id.name.Compare(b.id.name))
	})
}

// addKept adds what is kept, with a Problem of each Service.
func (b *beginning) addKept(w *wanted, o object) {
	first := len(w.services)
	o.add(w)
	for i := range w.services[first:] {
		f := convert.NewFindings(convert.KindService, o.id.name)
		f.Add("", "no manifest defines it, and not all manifests could be read since the start: its last copy is in force")
		added := &w.services[first+i]
		added.Problems = state.Bound(o.id.object(), f.Problems(), added.Problems)
	}
}

// save copies the files that have changed and have no fault. While anything is kept, all copies stay as they are.
func (m *Source) save() {
	if m.Copies == "" || m.ReadOnly || m.begin.keeps() {
		return
	}
	err := m.writeCopies()
	if err != nil && m.uncopied == nil {
		m.Log.Warn("cannot copy manifests; a restart while one of them cannot be read serves older copies, or waits",
			"folder", m.Copies, "error", err)
	}
	m.uncopied = err
}

// writeCopies gives the folder of the copies its name when it has all of them. Otherwise a process that ends meanwhile would
// leave a few, and the next one would take them for all.
func (m *Source) writeCopies() error {
	dir := m.Copies
	if !m.copied {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			dir += ".new"
		}
		if err := m.prepareCopies(dir); err != nil {
			return err
		}
	}
	for name, f := range m.files {
		if f.uncopied == nil {
			continue
		}
		if err := directory.Replace(filepath.Join(dir, name), f.uncopied); err != nil {
			return err
		}
		f.uncopied = nil
	}
	if dir != m.Copies {
		if err := os.Rename(dir, m.Copies); err != nil {
			return err
		}
	}
	m.copied = true
	return nil
}

// prepareCopies makes a folder for copies, and removes those of files that are gone.
func (m *Source) prepareCopies(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	copies, err := os.ReadDir(dir)
	for _, e := range copies {
		if m.files[e.Name()] == nil {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
