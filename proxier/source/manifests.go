package source

import (
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
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// unsettled is how old a file must be when it is read for its time stamp to vouch for its content later: time stamps
// are only as fine as the kernel's clock tick, on some file systems as a second or two.
const unsettled = 2 * time.Second

// ManifestsOptions are the parts of a manifest source; all must be set.
type ManifestsOptions struct {
	Dir      string
	NodeName string
	Store    *state.Store
	Log      *slog.Logger
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
	synced   chan struct{}
	loaded   sync.Once
}

// file is one manifest file and what of it is in force.
type file struct {
	seen     os.FileInfo // when it was read
	readAt   time.Time
	sum      [sha256.Size]byte
	good     bool // the objects come from a file that could be parsed as a whole
	objects  []object
	faults   []fault
	reported []fault // with those that come from other files
}

// NewManifests returns a source that does nothing until Load or Run.
func NewManifests(o ManifestsOptions) *Manifests {
	return &Manifests{
		dir: o.Dir, nodeName: o.NodeName, store: o.Store, log: o.Log,
		convert: newConverter(), into: newSinks(o.Store), files: map[string]*file{}, synced: make(chan struct{}),
	}
}

// Synced is closed when the directory has been read once.
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

// scan brings the store in step with the directory.
func (m *Manifests) scan() error {
	names, err := m.list()
	if err != nil {
		return fmt.Errorf("read manifest directory: %w", err)
	}
	changed := false
	for name := range m.files {
		if !slices.Contains(names, name) {
			m.forget(name)
			changed = true
		}
	}
	for _, name := range names {
		changed = m.refresh(name) || changed
	}
	if changed {
		m.apply(names)
	}
	return nil
}

// list returns the names of all manifest files, sorted. Hidden entries are none: editors and the kubelet (..data) use
// them for what is not there yet.
func (m *Manifests) list() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && manifestName(e.Name()) && m.isFile(e) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func manifestName(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// isFile follows links. One that leads nowhere is no file; one that cannot be followed may be, so its content stays.
func (m *Manifests) isFile(e fs.DirEntry) bool {
	info, err := os.Stat(filepath.Join(m.dir, e.Name()))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular()
}

// forget drops a file that is gone; its objects leave with the next apply.
func (m *Manifests) forget(name string) {
	delete(m.files, name)
	m.store.SetProblems(kindFile, state.Name{Name: name}, nil)
}

// refresh reads a file again if it may have changed and tells whether it did.
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
		return false // gone since the directory was listed: the next scan will not list it
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

// unchanged tells whether a file is certainly the one that was read.
func (f *file) unchanged(info os.FileInfo) bool {
	return f.seen != nil && os.SameFile(f.seen, info) && f.seen.Size() == info.Size() &&
		f.seen.ModTime().Equal(info.ModTime()) && f.readAt.Sub(info.ModTime()) > unsettled
}

// unreadable keeps what is in force.
func (f *file) unreadable(err error) bool {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err // without the path, which the log and the problem have beside it
	}
	faults := []fault{{1, fmt.Sprintf("cannot be read: %v: its previous content, if it had one, stays in force", err)}}
	changed := !slices.Equal(f.faults, faults)
	f.seen, f.faults = nil, faults
	return changed
}

// update takes the new content of a file as far as it can be trusted. A file with parts that do not parse may be
// half written: what it lacks is not gone. Without previous content the parts that do parse are better than nothing.
func (f *file) update(c content) {
	f.faults = c.faults
	if c.torn && f.good {
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
	f.good = !c.torn
}

// wanted gathers the objects of all files.
type wanted struct {
	services     []found[state.Service]
	slices       []found[state.Slice]
	nodes        []found[state.Node]
	serviceCIDRs []found[serviceCIDR]
}

// apply writes the objects of all files into the store. An object that occurs twice is taken from the first file.
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
				faults = append(faults, fault{o.line, fmt.Sprintf("%s is also in %s: that one counts", o.id, other)})
				continue
			}
			first[o.id] = name
			w.add(o, m.nodeName)
		}
		m.report(name, f, faults)
	}
	m.into.services.replace(w.services)
	m.into.slices.replace(w.slices)
	m.into.nodes.replace(w.nodes)
	m.into.serviceCIDRs.replace(w.serviceCIDRs)
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
	value, _ := o.value.(*T) // nil when the object is not served
	return found[T]{name: o.id.name, value: value, problems: o.problems}
}

// report logs what is newly wrong with a file and tells the store all that is.
func (m *Manifests) report(name string, f *file, faults []fault) {
	if slices.Equal(f.reported, faults) {
		return
	}
	var problems []state.Problem
	for _, w := range faults {
		if !slices.Contains(f.reported, w) {
			m.log.Warn("manifest file has a problem", "file", filepath.Join(m.dir, name), "line", w.line, "reason", w.text)
		}
		problems = append(problems, state.Problem{
			Kind: kindFile, Object: state.Name{Name: name}, Field: fmt.Sprintf("line %d", w.line), Reason: w.text,
		})
	}
	f.reported = faults
	m.store.SetProblems(kindFile, state.Name{Name: name}, problems)
}
