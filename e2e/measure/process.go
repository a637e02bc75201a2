package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat. It is 1/100 s on all architectures that Go supports, whatever the
// tick of the kernel is.
const clockTick = 10 * time.Millisecond

// Process is the CPU time and memory that a process has used so far.
type Process struct {
	Name        string
	CPU         time.Duration // its own, user and system
	ChildrenCPU time.Duration // of children that have ended
	RSS         int64         // resident memory now, in bytes
	Peak        int64         // the highest resident memory so far, in bytes
}

// Inspect reads the CPU time and memory of a process.
func Inspect(pid int) (Process, error) {
	fields, err := statFields(pid)
	if err != nil {
		return Process{}, err
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i-3], 10, 64) // the kernel writes numbers
		return time.Duration(n) * clockTick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Process{}, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	p := Process{Name: strings.TrimSpace(line(string(status), "Name:")), CPU: ticks(14) + ticks(15), ChildrenCPU: ticks(16) + ticks(17)}
	p.RSS, p.Peak = kilobytes(string(status), "VmRSS:"), kilobytes(string(status), "VmHWM:")
	return p, nil
}

// statFields are the fields of /proc/PID/stat from the third on. The second is a name in parentheses and may contain
// blanks.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("inspect process %d: /proc/%d/stat has only %d fields", pid, pid, len(fields)+2)
	}
	return fields, nil
}

// line is the text between a label and the end of its line.
func line(text, label string) string {
	_, rest, _ := strings.Cut(text, label)
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// kilobytes finds a line such as "VmRSS:  123 kB" and returns the number of bytes.
func kilobytes(text, label string) int64 {
	fields := strings.Fields(line(text, label))
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n << 10
}

// Children lists the running child processes of a process.
func Children(pid int) []int {
	var out []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// SettledKernelMemory waits until the kernel has freed the memory of programs that ended, and returns KernelMemory.
func SettledKernelMemory() (int64, error) {
	const enough = 512 << 10
	last, err := KernelMemory()
	for range 20 {
		time.Sleep(time.Second)
		now, again := KernelMemory()
		if again != nil || err != nil {
			return now, errors.Join(err, again)
		}
		if max(last-now, now-last) < enough {
			return now, nil
		}
		last = now
	}
	return last, nil
}

// KernelMemory is the memory of the kernel in bytes: slab that cannot be reclaimed, and larger allocations.
func KernelMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the kernel's memory: %w", err)
	}
	return kilobytes(string(text), "SUnreclaim:") + kilobytes(string(text), "VmallocUsed:"), nil
}
