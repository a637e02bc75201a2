package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// unsettled is the resolution of time stamps: a clock tick of the kernel, and on some file systems up to two seconds.
// If a file was younger than that when it was read, a later change may have left its time stamp as it was.
const unsettled = 2 * time.Second

// ManifestsOptions are the parts of a Manifests source. All but Kept must be set.
type ManifestsOptions struct {
	Dir      string
	NodeName string
	Store    *state.Store
	Log      *slog.Logger
	// Kept reads what the kernel has from an earlier process. It is called only if not all manifests can be read at the
	// start. It may be nil: nothing is kept.
	Kept func() (Kept, error)
}

// Manifests reads the objects from the YAML and JSON files of a directory.
type Manifests struct {
	dir      string
	nodeName string
	store    *state.Store
	log      *slog.Logger
	convert  *converter
	into     *sinks
	files    map[string]*file // by name inside dir
	links    []string         // names of files that are links; those may lead to other directories
	begin    beginning
	synced   chan struct{}
	loaded   sync.Once
}

// file is one manifest file and its objects that are in force.
type file struct {
	seen     os.FileInfo // from the time when it was read; nil: it could not be read
	readAt   time.Time
	sum      [sha256.Size]byte
	good     bool // the objects come from a file without damaged parts
	lacks    bool // an object cannot be decoded and has no previous form
	objects  []object
	faults   []fault
	reported []fault // all faults of the latest report, including those that other files cause
}

// NewManifests returns a source that does nothing until Load or Run.
func NewManifests(o ManifestsOptions) *Manifests {
	return &Manifests{
		dir: o.Dir, nodeName: o.NodeName, store: o.Store, log: o.Log,
		convert: newConverter(), into: newSinks(o.Store), files: map[string]*file{}, synced: make(chan struct{}),
		begin: beginning{read: o.Kept},
	}
}

// Synced returns a channel that is closed once the directory has been read.
func (m *Manifests) Synced() <-chan struct{} { return m.synced }

// Load reads a directory once, in place of the one that was read before. Files that cannot be understood are logged and
// reported to the store; only a directory that cannot be read is an error.
func (m *Manifests) Load(dir string) error {
	m.dir = dir
	if err := m.scan(); err != nil {
		return err
	}
	m.loaded.Do(func() { close(m.synced) })
	return nil
}

// Run loads the directory and follows its changes until the context ends. It returns an error if the directory cannot
// be read at the start. If the directory disappears later, its objects stay in force.
func (m *Manifests) Run(ctx context.Context) error {
	return directory.Follow(ctx, directory.Options{
		Dir: m.dir, What: "manifest directory", Links: func() []string { return m.links },
		Scan: m.scan, Unread: m.hasUnreadable, Log: m.log,
	}, func() { m.loaded.Do(func() { close(m.synced) }) })
}

// scan updates the store from the directory. It logs the faults of files and reports them to the store. It returns an
// error only if the directory itself cannot be read.
func (m *Manifests) scan() error {
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
			m.forget(name)
			changed = true
		}
	}
	for _, name := range names {
		changed = m.refresh(name) || changed
	}
	held, failure := m.holdOn(names, err)
	if failure != nil || err != nil && !held {
		return errors.Join(err, failure)
	}
	if m.begin.over = true; changed || held {
		m.apply(names)
	}
	return nil
}

// list returns the names of all manifest files, sorted. It skips hidden entries, because editors and the kubelet
// (..data) use them for files that are not complete yet.
func (m *Manifests) list() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
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
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// isFile reports whether an entry is a regular file or links to one. A link without a target is no file. An entry that
// Stat cannot read for another reason counts as a file, so its objects stay in force.
func (m *Manifests) isFile(e fs.DirEntry) bool {
	if e.Type().IsRegular() {
		return true
	}
	info, err := os.Stat(filepath.Join(m.dir, e.Name()))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular()
}

// forget drops a file that is gone. The next apply removes its objects.
func (m *Manifests) forget(name string) {
	delete(m.files, name)
	m.store.SetProblems(kindFile, fileName(name), nil)
}

// refresh reads a file again if it may have changed. It reports whether the content changed.
func (m *Manifests) refresh(name string) bool {
	path, now := filepath.Join(m.dir, name), time.Now()
	f := m.files[name]
	info, err := os.Stat(path)
	if err == nil && f != nil && f.unchanged(info) {
		return false
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false // gone since the directory was listed; the next scan will not list it
	}
	if f == nil {
		f = &file{}
		m.files[name] = f
	}
	if err != nil {
		return f.unreadable(err)
	}
	sum := sha256.Sum256(data)
	same := f.seen != nil && f.sum == sum
	f.seen, f.readAt, f.sum = info, now, sum
	if same {
		return false
	}
	f.update(m.convert.decodeFile(name, data))
	return true
}

// unchanged reports whether a file is certainly the one that was read. A program can set the time of the last write back
// (cp -p, rsync --times). It cannot set the time of the last change of the inode.
func (f *file) unchanged(info os.FileInfo) bool {
	if f.seen == nil || !os.SameFile(f.seen, info) || f.seen.Size() != info.Size() || !f.seen.ModTime().Equal(info.ModTime()) {
		return false
	}
	changed := inodeChanged(info)
	return inodeChanged(f.seen).Equal(changed) && f.readAt.Sub(changed) > unsettled && f.readAt.Sub(info.ModTime()) > unsettled
}

// inodeChanged returns the time of the last change of an inode, or the present time if the file system has none.
func inodeChanged(info os.FileInfo) time.Time {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Now()
	}
	return time.Unix(stat.Ctim.Unix())
}

// unreadable records that a file cannot be read. Its objects stay in force.
func (f *file) unreadable(err error) bool {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err // drops the path, which the log line and the problem have in a field of their own
	}
	faults := []fault{{line: 1, text: fmt.Sprintf("cannot be read: %v: its previous content, if any, stays in force", err)}}
	changed := !slices.Equal(f.faults, faults)
	f.seen, f.faults = nil, faults
	return changed
}

// hasUnreadable reports whether a file could not be read the last time.
func (m *Manifests) hasUnreadable() bool {
	if m.begin.keeps() {
		return true
	}
	for _, f := range m.files {
		if f.seen == nil {
			return true
		}
	}
	return false
}

// update takes over the new content of a file. A file with damaged parts may be half written, so objects that are
// missing from it are not gone, and the previous content stays in force. If there is no previous content, update takes
// the parts that do parse.
func (f *file) update(c content) {
	f.faults = c.faults
	if c.damaged && f.good {
		for i := range f.faults {
			f.faults[i].text += ": the file's previous content stays in force"
		}
		return
	}
	var kept []object
	for _, o := range f.objects {
		if _, broken := c.broken[o.id]; broken {
			kept = append(kept, o)
		}
	}
	f.objects = slices.Concat(c.objects, kept)
	f.good, f.lacks = !c.damaged, len(kept) < len(c.broken)
}

// wanted holds the objects of all files.
type wanted struct {
	services     []found[state.Service]
	slices       []found[state.Slice]
	nodes        []found[state.Node]
	serviceCIDRs []found[serviceCIDR]
}

// apply writes the objects of all files into the store. Of an object that is defined twice, the first definition
// counts.
func (m *Manifests) apply(names []string) {
	var w wanted
	first := map[objectID]string{}
	for _, name := range names {
		f := m.files[name]
		if f == nil {
			continue // gone before it was read for the first time
		}
		faults := slices.Clone(f.faults)
		for _, o := range f.objects {
			if other, twice := first[o.id]; twice {
				text := fmt.Sprintf("%s is defined twice: the first definition, in %s, is used", o.id, other)
				faults = append(faults, fault{line: o.line, text: text})
				continue
			}
			first[o.id] = name
			w.add(o, m.nodeName)
		}
		m.report(name, f, faults)
	}
	m.begin.complete(&w)
	// An endpoint that moves from one file to another is never missing.
	m.store.Together(func() {
		m.into.services.replace(w.services)
		m.into.slices.replace(w.slices)
		m.into.nodes.replace(w.nodes)
		m.into.serviceCIDRs.replace(w.serviceCIDRs)
	})
}

func (w *wanted) add(o object, nodeName string) {
	switch o.id.kind {
	case kindService:
		w.services = append(w.services, foundIn[state.Service](o))
	case kindSlice:
		w.slices = append(w.slices, foundIn[state.Slice](o))
	case kindServiceCIDR:
		w.serviceCIDRs = append(w.serviceCIDRs, foundIn[serviceCIDR](o))
	case kindNode:
		if o.id.name.Name == nodeName {
			w.nodes = append(w.nodes, foundIn[state.Node](o))
		}
	}
}

func foundIn[T any](o object) found[T] {
	value, _ := o.value.(*T) // nil if the proxy does not serve the object
	return found[T]{name: o.id.name, value: value, problems: o.problems}
}

// report logs the new faults of a file and passes all its faults to the store.
func (m *Manifests) report(name string, f *file, faults []fault) {
	if slices.Equal(f.reported, faults) {
		return
	}
	var problems []state.Problem
	for _, w := range faults {
		if !slices.Contains(f.reported, w) {
			m.log.Warn("a manifest file has a fault", "file", filepath.Join(m.dir, name), "line", w.line, "reason", state.Printable(w.text))
		}
		problems = append(problems, state.Problem{
			Kind: kindFile, Object: fileName(name), Field: fmt.Sprintf("line %d", w.line), Reason: state.Printable(w.text),
		})
	}
	f.reported = faults
	m.store.SetProblems(kindFile, fileName(name), problems)
}

// fileName names a file in Problems, which are printed on terminals.
func fileName(name string) state.Name { return state.Name{Name: state.Printable(name)} }
