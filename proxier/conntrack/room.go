package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Room is how full the table of connections of a network namespace is. When it is full, the kernel makes room by
// dropping connections that had no answer yet. If it finds none, it drops the first packet of each new connection of the
// namespace, before any rule sees it.
type Room struct {
	Entries, Limit int
	Dropped        int // first packets that found no room, since the kernel started
	Evicted        int // connections without an answer that were dropped for new ones
}

// Tight reports whether so much of the table is in use that connections are about to fail.
func (r Room) Tight() bool { return r.Limit > 0 && r.Entries >= r.Limit/10*9 }

func (r Room) String() string {
	return fmt.Sprintf("%d of %d connections, %d first packets dropped so far", r.Entries, r.Limit, r.Dropped)
}

// ReadRoom reads the table of the calling thread's network namespace. The root is "/proc", except in tests.
func ReadRoom(root string) (r Room, err error) {
	for name, to := range map[string]*int{"nf_conntrack_count": &r.Entries, "nf_conntrack_max": &r.Limit} {
		file := filepath.Join(root, "sys/net/netfilter", name)
		text, err := os.ReadFile(file)
		if err == nil {
			*to, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return r, fmt.Errorf("read how full the table of connections is: %s: %w", file, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "thread-self/net/stat/nf_conntrack"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil // a kernel without CONFIG_NF_CONNTRACK_PROCFS
	}
	if err != nil {
		return r, fmt.Errorf("read how many connections found no room in the table: %w", err)
	}
	r.Dropped, r.Evicted = column(string(text), "drop"), column(string(text), "early_drop")
	return r, nil
}

// column adds up a column of a table that has a line of hexadecimal numbers for each core.
func column(table, name string) (sum int) {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for i, title := range strings.Fields(lines[0]) {
		if title != name {
			continue
		}
		for _, line := range lines[1:] {
			if cells := strings.Fields(line); i < len(cells) {
				n, _ := strconv.ParseUint(cells[i], 16, 32) // the kernel writes numbers
				sum += int(n)
			}
		}
	}
	return sum
}
