// Package directory follows a directory, or one file of it, and has it read again after each change. It knows nothing of what
// the files mean: manifests and the configuration file are followed alike.
package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The times of a directory that is followed. Programs make several changes to a directory where the user means one. So the
// follower waits until the directory has been quiet for a moment, up to a limit. It also reads the directory at regular
// times, for network mounts that send no events and for links further up in the path.
const (
	quietPeriod = 50 * time.Millisecond
	longestWait = 500 * time.Millisecond
	regularLook = 30 * time.Second
	// firstRetry is when a directory or a file is read again that could not be read: no event says when the process has
	// descriptors again. Each further attempt waits twice as long, up to regularLook.
	firstRetry = 250 * time.Millisecond
)

// Options say which directory is followed, and who reads it.
type Options struct {
	Dir    string
	What   string          // the directory, for the log
	Links  func() []string // names in it that may be links
	Scan   func() error    // reads the directory
	Unread func() bool     // reports whether a file could not be read
	// Now delivers requests to read the directory at once; nil: nobody asks. Each is answered with Fault.
	Now   <-chan Request
	Fault func() error // says what of the last reading cannot be used
	Log   *slog.Logger
}

// Request is answered when the directory has been read.
type Request chan<- error

// Read has a follower read its directory now, and returns what it cannot use.
func Read(ctx context.Context, now chan<- Request) error {
	answer := make(chan error, 1)
	select {
	case now <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follower reads a directory again when something happens in it.
type follower struct {
	Options
	every   time.Duration
	watcher *fsnotify.Watcher

	linked    bool // files link into the directory's parent
	lost      bool // the directory cannot be read
	unwatched bool // a directory cannot be watched

	backoff time.Duration    // 0: everything could be read
	retry   <-chan time.Time // when to read again; nil: at the regular time
}

// Follow reads the directory, and reads it again after each change until the context ends. It returns an error if the
// directory cannot be read at the start. What happens to it later only delays the next reading.
func Follow(ctx context.Context, o Options) error {
	f := follower{Options: o, every: regularLook}
	return f.run(ctx)
}

// FollowFile calls a function now, and again whenever the file may have changed or somebody asks, until the context ends.
// The function returns why the file cannot be used; it is then soon called again.
func FollowFile(ctx context.Context, file string, now <-chan Request, read func() error, log *slog.Logger) error {
	var fault error
	return Follow(ctx, Options{
		Dir: filepath.Dir(file), What: "directory of " + file, Links: func() []string { return []string{filepath.Base(file)} },
		Scan: func() error {
			fault = read()
			return nil
		},
		Unread: func() bool { return fault != nil }, Now: now, Fault: func() error { return fault }, Log: log,
	})
}

// run reads the directory, and follows it when that works.
func (f *follower) run(ctx context.Context) (err error) {
	if f.watcher, err = fsnotify.NewWatcher(); err != nil {
		return fmt.Errorf("watch %s %s: %w; if the limit of inotify instances is reached, raise fs.inotify.max_user_instances", f.What, f.Dir, err)
	}
	defer func() {
		if err := f.watcher.Close(); err != nil {
			f.Log.Warn("cannot close a watch; it ends with the process", "watched", f.What, "error", err)
		}
	}()
	if err := f.look(); err != nil {
		return err
	}
	f.retryLater(f.Unread())
	return f.follow(ctx)
}

// look reads the directory. If the files link into directories that were not watched, it watches those and reads once
// more, because they may have changed in between.
func (f *follower) look() error {
	f.rewatch()
	if err := f.Scan(); err != nil {
		return err
	}
	if f.rewatch() {
		return f.Scan()
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
			// The usual error is an overflow: some events are lost, so all files must be read.
			f.Log.Warn("a watch reported an error; reading all files again", "watched", f.What, "error", err)
			pending.happened(time.Now())
		case <-pending.over():
			pending = settling{}
			_ = f.again() // logged
		case <-f.retry:
			_ = f.again() // logged
		case <-regular.C:
			_ = f.again() // logged
		case answer := <-f.Now:
			pending = settling{}
			answer <- f.again()
		}
	}
}

func (f *follower) ended() error {
	return fmt.Errorf("watch %s %s: the watch ended, so changes are no longer seen", f.What, f.Dir)
}

// again reads the directory after the start, and returns what cannot be used. A directory that cannot be read then does not
// end the follower.
func (f *follower) again() error {
	err := f.look()
	if err != nil && !f.lost {
		f.Log.Warn("cannot read the manifest directory; its objects stay in force until it can be read", "error", err)
	}
	if err == nil && f.lost {
		f.Log.Info("the manifest directory can be read again", "dir", f.Dir)
	}
	f.lost = err != nil
	f.retryLater(err != nil || f.Unread())
	if err == nil && f.Fault != nil {
		err = f.Fault()
	}
	return err
}

// retryLater schedules the next attempt if something could not be read.
func (f *follower) retryLater(wanted bool) {
	if !wanted {
		f.backoff, f.retry = 0, nil
		return
	}
	f.backoff = min(max(firstRetry, 2*f.backoff), f.every)
	f.retry = time.After(f.backoff)
}

// concerns reports whether an event matters. Events of other entries in the parent of the directory do not.
func (f *follower) concerns(event fsnotify.Event) bool {
	dir, err := filepath.Abs(f.Dir)
	return err != nil || f.linked || filepath.Dir(event.Name) != filepath.Dir(dir) || event.Name == dir
}

// rewatch watches exactly these directories: the manifest directory, its parent, which shows when the manifest
// directory or a link to it is replaced, and the directories of linked files. It reports whether one of them is new.
func (f *follower) rewatch() bool {
	wanted, linked := f.directories()
	f.linked = linked
	watched := f.watcher.WatchList()
	for _, dir := range watched {
		if !slices.Contains(wanted, dir) {
			// Remove fails if the directory is gone, and then the watch is gone too.
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
		f.Log.Warn("cannot watch a directory; reading it at regular times instead",
			"watched", f.What, "error", failure, "every", f.every)
	}
	f.unwatched = failure != nil
	return added
}

// directories returns the directories in which a change may matter. linked reports whether files link into the parent
// of the manifest directory.
func (f *follower) directories() (dirs []string, linked bool) {
	abs, err := filepath.Abs(f.Dir)
	if err != nil {
		return nil, false
	}
	parent := filepath.Dir(abs)
	dirs = append(dirs, parent)
	resolved, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return dirs, false // gone: an event of the parent shows when it is back
	}
	dirs = append(dirs, resolved)
	for _, name := range f.Links() {
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
	last  time.Time // when the wait ends at the latest
}

func (s *settling) happened(now time.Time) {
	if s.timer == nil {
		s.last = now.Add(longestWait)
		s.timer = time.NewTimer(quietPeriod)
		return
	}
	s.timer.Reset(s.wait(now))
}

// wait returns how long to wait from now on if nothing else happens.
func (s *settling) wait(now time.Time) time.Duration { return min(quietPeriod, s.last.Sub(now)) }

// over returns a channel that delivers when it is time to read. It is nil if nothing has happened.
func (s *settling) over() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}

// Replace writes a file that only this user can read. A reader sees the old content or the new one.
func Replace(path string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".*.new") // another process may be taking over
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next.Name()))
	}
	return err
}
