package source

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Pauses of the manifest directory. Writers make several changes to a directory for one that is meant: reading waits
// until it has been quiet for a moment, but not for ever. The regular look is for file systems that tell nothing
// (network mounts) and for links far up the path.
const (
	quietPeriod = 50 * time.Millisecond
	longestWait = 500 * time.Millisecond
	regularLook = 30 * time.Second
)

// Run loads the directory and follows its changes until the context ends. A directory that is missing at the start is
// an error; one that vanishes later leaves everything in force.
func (m *Manifests) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch manifest directory %s (fs.inotify.max_user_instances too small?): %w", m.dir, err)
	}
	defer func() {
		if err := watcher.Close(); err != nil {
			m.log.Warn("cannot close the watch of the manifest directory", "err", err)
		}
	}()
	follower := follower{manifests: m, watcher: watcher, every: regularLook}
	if err := follower.look(); err != nil {
		return err
	}
	m.loaded.Do(func() { close(m.synced) })
	return follower.follow(ctx)
}

// follower reads a directory again when something happens in it.
type follower struct {
	manifests *Manifests
	watcher   *fsnotify.Watcher
	every     time.Duration
	linked    bool // files link into the directory's parent
	lost      bool // the directory cannot be read at present
	unwatched bool // some directory cannot be watched at present
}

// look reads the directory, and once more if that showed further directories to watch: they may have changed before
// they were.
func (f *follower) look() error {
	f.rewatch()
	if err := f.manifests.scan(); err != nil {
		return err
	}
	if f.rewatch() {
		return f.manifests.scan()
	}
	return nil
}

func (f *follower) follow(ctx context.Context) error {
	regular := time.NewTicker(f.every)
	defer regular.Stop()
	pending := settling{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-f.watcher.Events:
			if !open {
				return f.ended()
			}
			if f.concerns(event) {
				pending.happened(time.Now())
			}
		case err, open := <-f.watcher.Errors:
			if !open {
				return f.ended()
			}
			// Mostly an overflow: some events are lost, so all files are looked at.
			f.manifests.log.Warn("watch of the manifest directory failed; reading all of it again", "err", err)
			pending.happened(time.Now())
		case <-pending.over():
			pending = settling{}
			f.again()
		case <-regular.C:
			f.again()
		}
	}
}

func (f *follower) ended() error {
	return fmt.Errorf("watch manifest directory %s: the watch ended, changes are no longer seen", f.manifests.dir)
}

// again looks after the start, when a directory that cannot be read is no reason to end.
func (f *follower) again() {
	log := f.manifests.log
	err := f.look()
	if err != nil && !f.lost {
		log.Warn("manifest directory is lost; what it held stays in force until it is back", "err", err)
	}
	if err == nil && f.lost {
		log.Info("manifest directory is back", "dir", f.manifests.dir)
	}
	f.lost = err != nil
}

// concerns leaves out what happens beside the directory, in its parent.
func (f *follower) concerns(event fsnotify.Event) bool {
	dir, err := filepath.Abs(f.manifests.dir)
	return err != nil || f.linked || filepath.Dir(event.Name) != filepath.Dir(dir) || event.Name == dir
}

// rewatch watches the directory itself, the one it is in (which tells when it is replaced, as a link mostly is), and
// those that linked files are in; no others. It tells whether any is new.
func (f *follower) rewatch() bool {
	wanted, linked := f.manifests.directories()
	f.linked = linked
	watched := f.watcher.WatchList()
	for _, dir := range watched {
		if !slices.Contains(wanted, dir) {
			// It fails when the directory is gone, and the watch with it.
			_ = f.watcher.Remove(dir)
		}
	}
	added := false
	var failure error
	for _, dir := range wanted {
		if slices.Contains(watched, dir) {
			continue
		}
		if err := f.watcher.Add(dir); err != nil {
			failure = fmt.Errorf("watch %s: %w", dir, err)
			continue
		}
		added = true
	}
	if failure != nil && !f.unwatched {
		f.manifests.log.Warn("cannot watch a manifest directory; it is looked at regularly instead",
			"err", failure, "every", f.every)
	}
	f.unwatched = failure != nil
	return added
}

// directories are those in which a change may matter; linked tells whether files link into the directory's parent.
func (m *Manifests) directories() (dirs []string, linked bool) {
	abs, err := filepath.Abs(m.dir)
	if err != nil {
		return nil, false
	}
	parent := filepath.Dir(abs)
	dirs = append(dirs, parent)
	resolved, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return dirs, false // gone: the parent tells when it is back
	}
	dirs = append(dirs, resolved)
	for name := range m.files {
		if target, err := filepath.EvalSymlinks(filepath.Join(resolved, name)); err == nil {
			dirs = append(dirs, filepath.Dir(target))
			linked = linked || filepath.Dir(target) == parent
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), linked
}

// settling waits for a directory to become quiet.
type settling struct {
	timer *time.Timer
	last  time.Time // when to stop waiting
}

func (s *settling) happened(now time.Time) {
	if s.timer == nil {
		s.last = now.Add(longestWait)
		s.timer = time.NewTimer(quietPeriod)
		return
	}
	s.timer.Reset(s.wait(now))
}

// wait is how long to wait from now on, if nothing else happens.
func (s *settling) wait(now time.Time) time.Duration { return min(quietPeriod, s.last.Sub(now)) }

// over delivers when it is time to read; never while nothing happened.
func (s *settling) over() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}
