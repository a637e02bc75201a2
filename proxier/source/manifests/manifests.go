package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options are the parts of a Source. All but the last three must be set.
type Options struct {
	Dir      string
	NodeName string
	Store    *state.Store
	Log      *slog.Logger
	// Copies is a folder for copies of the manifests that have no fault; empty: nothing is copied.
	Copies string
	// ReadOnly leaves the copies as they are.
	ReadOnly bool
	// Serving reports whether the kernel serves Services of an earlier process. It is called only if not all manifests can be
	// read at the start. It may be nil: nothing is kept.
	Serving func() (bool, error)
	// Now delivers requests to read the directory at once; nil: nobody asks.
	Now <-chan directory.Request
}

// Source reads the objects from the YAML and JSON files of a directory.
type Source struct {
	Options
	convert *convert.Converter
	into    *sink.Sinks
	files   map[string]*file // by name inside Dir
	inForce map[objectID]definition
	links   []string // names of files that are links; those may lead to other directories
	begin   beginning
	synced  chan struct{}
	loaded  sync.Once

	copied   bool  // the copies have what the files had when all of them were read first
	uncopied error // why the last copy failed
}

// New returns a source that does nothing until Load or Run.
func New(o Options) *Source {
	return &Source{
		Options: o, convert: convert.New(), into: sink.New(o.Store), files: map[string]*file{}, synced: make(chan struct{}),
	}
}

// Synced returns a channel that is closed once the directory has been read.
func (m *Source) Synced() <-chan struct{} { return m.synced }

// Load reads a directory once, in place of the one that was read before. Files that cannot be understood are logged and
// reported to the store; only a directory that cannot be read is an error, and one of which nothing can be in force yet.
func (m *Source) Load(dir string) error {
	m.Dir = dir
	_, err := m.list()
	if err != nil {
		return fmt.Errorf("read manifest directory: %w", err)
	}
	if err = m.scan(); err == nil && m.begin.waiting {
		err = fmt.Errorf("%s: not all manifests can be read, or there is none, and there are no copies of them: what the kernel has stays as it is", dir)
		for name, f := range m.files {
			for _, w := range f.faults {
				err = fmt.Errorf("%s:%d: %s; %w", filepath.Join(m.Dir, name), w.line, state.Printable(w.text), err)
			}
		}
	}
	return err
}

// Run loads the directory and follows its changes until the context ends. It returns an error if the directory cannot
// be read at the start. If the directory disappears later, its objects stay in force.
func (m *Source) Run(ctx context.Context) error {
	return directory.Follow(ctx, directory.Options{
		Dir: m.Dir, What: "manifest directory", Links: func() []string { return m.links },
		Scan: m.scan, Unread: m.hasUnreadable, Now: m.Now, Log: m.Log,
	})
}

// scan updates the store from the directory. It logs the faults of files and reports them to the store. It returns an
// error only if the directory itself cannot be read.
func (m *Source) scan() error {
	names, err := m.list()
	if err != nil {
		err = fmt.Errorf("read manifest directory: %w", err)
		if m.begin.over {
			return err
		}
	}
	changed := false
	for name := range m.files {
		if _, found := slices.BinarySearch(names, name); !found {
			delete(m.files, name) // apply removes its objects
			if m.copied {
				_ = os.Remove(filepath.Join(m.Copies, name)) // there is none of a file that always had a fault
			}
			m.Store.SetProblems(convert.KindFile, fileName(name), nil)
			changed = true
		}
	}
	for _, name := range names {
		changed = m.refresh(name) || changed
	}
	held, failure := m.holdOn(names, err)
	if failure != nil || m.begin.waiting || err != nil && !held {
		return failure
	}
	if !m.begin.over || changed || held {
		m.apply(names)
	}
	m.begin.over = true
	m.loaded.Do(func() { close(m.synced) })
	m.save()
	return nil
}

// list returns the names of all manifest files, sorted. It skips hidden entries, because editors and the kubelet
// (..data) use them for files that are not complete yet.
func (m *Source) list() ([]string, error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	m.links, m.begin.dangling = m.links[:0], nil
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !manifestName(e.Name()) {
			continue
		}
		if !m.isFile(e) {
			if e.Type()&fs.ModeSymlink != 0 {
				m.begin.dangling = append(m.begin.dangling, e.Name())
			}
			continue
		}
		names = append(names, e.Name())
		if !e.Type().IsRegular() {
			m.links = append(m.links, e.Name())
		}
	}
	return names, nil
}

func manifestName(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// Ignored lists, of files and of the files in directories, those that no directory of manifests has because of their names.
// Hidden files are meant to be left out.
func Ignored(paths ...string) (names []string) {
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if err != nil && !manifestName(path) { // it is a file
			names = append(names, path)
		}
		for _, e := range entries {
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !manifestName(e.Name()) {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	}
	return names
}

// isFile reports whether an entry is a regular file or links to one. A link without a target is no file. An entry that
// Stat cannot read for another reason counts as a file, so its objects stay in force.
func (m *Source) isFile(e fs.DirEntry) bool {
	if e.Type().IsRegular() {
		return true
	}
	info, err := os.Stat(filepath.Join(m.Dir, e.Name()))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular()
}

// refresh reads a file again if it may have changed. It reports whether the content changed.
func (m *Source) refresh(name string) bool {
	f := m.files[name]
	if f == nil {
		f = &file{}
	}
	data, err := f.read(filepath.Join(m.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false // gone since the directory was listed; the next scan will not list it
	}
	m.files[name] = f
	switch {
	case err != nil:
		return f.unreadable(err)
	case data == nil:
		return false
	}
	c := decodeFile(m.convert, name, data)
	if f.update(c); m.Copies != "" && !c.damaged && len(c.broken) == 0 {
		f.uncopied = data
	}
	return true
}

// hasUnreadable reports whether a file could not be read the last time.
func (m *Source) hasUnreadable() bool {
	if m.begin.keeps() || m.begin.waiting {
		return true
	}
	for _, f := range m.files {
		if f.seen == nil {
			return true
		}
	}
	return false
}

// definition is the form of an object that is in force, and the file that it belongs to.
type definition struct {
	object
	file string
}

// apply writes the objects of all files into the store. Of an object that is defined twice, the first definition counts.
func (m *Source) apply(names []string) {
	var w wanted
	defined := map[objectID]definition{}
	concerns := func(o object) bool { return o.id.kind != convert.KindNode || o.id.name.Name == m.NodeName }
	use := func(o object, name string) {
		defined[o.id] = definition{o, name}
		if concerns(o) {
			o.add(&w)
		}
	}
	for _, name := range names {
		f := m.files[name]
		if f == nil {
			continue // gone before it was read for the first time
		}
		faults := slices.Clone(f.faults)
		for _, o := range f.objects {
			if other, twice := defined[o.id]; twice && len(faults) > maxFaults {
				continue
			} else if twice {
				text := fmt.Sprintf("%s is defined twice: the first definition, in %s, is used", o.id, other.file)
				faults = addFault(faults, fault{line: o.line, text: text})
				continue
			}
			use(o, name)
		}
		m.keepBroken(f, defined, func(d definition) {
			if d.file == name {
				use(d.object, name)
			}
		})
		m.report(name, f, faults)
	}
	for _, name := range names { // what was in another file until now, and is in none without a fault
		m.keepBroken(m.files[name], defined, func(d definition) { use(d.object, name) })
	}
	for _, o := range m.begin.missing(defined) {
		if defined[o.id] = (definition{o, ""}); concerns(o) {
			m.begin.addKept(&w, o)
		}
	}
	m.inForce = defined
	// An endpoint that moves from one file to another is never missing.
	m.Store.Together(func() {
		m.into.Services.Replace(w.services)
		m.into.Slices.Replace(w.slices)
		m.into.Nodes.Replace(w.nodes)
		m.into.ServiceCIDRs.Replace(w.serviceCIDRs)
	})
}

// keepBroken hands over the previous form of each object of a file that cannot be decoded, unless the object is defined.
func (m *Source) keepBroken(f *file, defined map[objectID]definition, keep func(definition)) {
	if f == nil {
		return
	}
	for id := range f.broken {
		before, had := m.inForce[id]
		if _, is := defined[id]; had && !is {
			keep(before)
		}
	}
}

// report logs the new faults of a file and passes all its faults to the store.
func (m *Source) report(name string, f *file, faults []fault) {
	if slices.Equal(f.reported, faults) {
		return
	}
	var problems []state.Problem
	for _, w := range faults {
		if !slices.Contains(f.reported, w) {
			m.Log.Warn("a manifest file has a fault", "file", filepath.Join(m.Dir, name), "line", w.line, "reason", state.Printable(w.text))
		}
		problems = append(problems, state.Problem{
			Kind: convert.KindFile, Object: fileName(name), Field: fmt.Sprintf("line %d", w.line), Reason: state.Printable(w.text),
		})
	}
	f.reported = faults
	m.Store.SetProblems(convert.KindFile, fileName(name), problems)
}

// fileName names a file in Problems, which are printed on terminals.
func fileName(name string) state.Name { return state.Name{Name: state.Printable(name)} }

// unknown names what could not be read: the objects in it are not known. err is that of the directory.
func (m *Source) unknown(names []string, err error) (what []string) {
	switch {
	case err != nil:
		return []string{err.Error()}
	case len(names)+len(m.begin.dangling) == 0:
		return []string{"the directory has no manifest"}
	}
	for _, name := range names {
		if f := m.files[name]; f == nil || !f.good || m.lacks(f) {
			what = append(what, name)
		}
	}
	return append(what, m.begin.dangling...)
}

// lacks reports whether an object of a file cannot be decoded and has no previous form.
func (m *Source) lacks(f *file) bool {
	for id := range f.broken {
		if _, had := m.inForce[id]; !had {
			return true
		}
	}
	return false
}

// holdOn decides at the start, and after each reading as long as something is kept, whether objects of the copies stay in
// force. It reports whether that has changed.
func (m *Source) holdOn(names []string, failure error) (changed bool, err error) {
	first, waited := !m.begin.over, m.begin.waiting
	if m.begin.waiting = false; !first && !m.begin.keeps() {
		return false, nil
	}
	what := m.unknown(names, failure)
	switch {
	case first && len(what) > 0:
		if m.begin.waiting, err = m.hold(); err != nil {
			return false, errors.Join(failure, err)
		}
		if unread := strings.Join(what[:min(len(what), 10)], ", "); m.begin.waiting && !waited {
			m.sayWaiting(names, unread)
		} else if m.begin.keeps() {
			m.Log.Error("not all manifests can be read; their copies stay in force for objects that no manifest defines",
				"dir", m.Dir, "unread", unread, "objects", len(m.begin.kept), "until", untilRead)
		} else if !m.begin.waiting {
			err = failure
		}
		return m.begin.keeps(), err
	case !first && len(what) == 0:
		m.Log.Info("all manifests can be read; what their copies had besides is removed", "objects", len(m.begin.kept))
		m.begin.kept = nil
		return true, nil
	}
	return false, nil
}

// untilRead says when all manifests count as read.
const untilRead = "each file can be read, or is gone; in an empty directory: there is a file, which may be a comment only; " +
	"verdict cleanup removes what is in the kernel"

// sayWaiting logs that nothing is in force yet, and reports the faults of the files.
func (m *Source) sayWaiting(names []string, unread string) {
	for _, name := range names {
		if f := m.files[name]; f != nil {
			m.report(name, f, f.faults)
		}
	}
	m.Log.Error("not all manifests can be read, and there are no copies of them; what the kernel has stays as it is",
		"dir", m.Dir, "unread", unread, "folder", m.Copies, "until", untilRead)
}
