package manifests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// file is one manifest file and its objects that are in force.
type file struct {
	seen     os.FileInfo // from the time when it was read; nil: it could not be read
	readAt   time.Time
	sum      [sha256.Size]byte
	good     bool // the objects come from a file without damaged parts
	objects  []object
	broken   map[objectID]struct{} // objects that cannot be decoded: their previous forms stay in force
	uncopied []byte                // content without a fault, of which there is no copy yet
	faults   []fault
	reported []fault // all faults of the latest report, including those that other files cause
}

// unsettled is the resolution of time stamps: a clock tick of the kernel, and on some file systems up to two seconds.
// If a file was younger than that when it was read, a later change may have left its time stamp as it was.
const unsettled = 2 * time.Second

// read reads the file at a path. It returns nothing if the content is the one that was read before.
func (f *file) read(path string) (data []byte, err error) {
	now := time.Now()
	info, err := os.Stat(path)
	if err != nil || f.unchanged(info) {
		return nil, err
	}
	if data, err = readFile(path, patience); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	same := f.seen != nil && f.sum == sum
	f.seen, f.readAt, f.sum = info, now, sum
	if same {
		return nil, nil
	}
	return data, nil
}

// maxSize is how many bytes a manifest may have. Objects need several times that while they are decoded.
const maxSize = 64 << 20

// patience is how long a file may keep its reader waiting, and so the changes of all others: a pipe that has just taken the place of a
// file, or a link to one of /proc from which only events can be read. It does not hold for what is on a disk.
const patience = 10 * time.Millisecond

// readFile reads a manifest. It reads no more than the limit, whatever size the file system states. 0: it waits as long as it takes.
func readFile(path string, patience time.Duration) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if patience > 0 {
		_ = f.SetReadDeadline(time.Now().Add(patience)) // fails if reading never waits
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size <= maxSize {
		data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
		if size, err = data.ReadFrom(io.LimitReader(f, maxSize+1)); err != nil {
			return nil, err
		}
		if size <= maxSize {
			return data.Bytes(), nil
		}
	}
	return nil, fmt.Errorf("the file has %d bytes or more, and a manifest may have %d; split it into several files", size, maxSize)
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
	remedy := ""
	if errors.Is(err, fs.ErrPermission) {
		remedy = fmt.Sprintf("; user %d must be able to read it: chmod o+r, or chown %[1]d", os.Geteuid())
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // drops the path, which the log line and the problem have in a field of their own
	}
	faults := []fault{{line: 1, text: fmt.Sprintf("cannot be read: %v: its previous content, if any, stays in force%s", err, remedy)}}
	changed := !slices.Equal(f.faults, faults)
	f.seen, f.faults = nil, faults
	return changed
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
	f.objects, f.broken, f.good = c.objects, c.broken, !c.damaged
}
