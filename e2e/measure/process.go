package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// clockTick is the unit of times in /proc/PID/stat. It is 1/100 s on all architectures that Go supports, whatever the
// tick of the kernel is.
const clockTick = 10 * time.Millisecond

// Process is the CPU time and memory that a process has used so far.
type Process struct {
	Name        string
	CPU         time.Duration // its own, user and system
	ChildrenCPU time.Duration // of children that have ended
	SystemCPU   time.Duration // the part of both that was spent in the kernel
	RSS         int64         // resident memory now, in bytes
	Peak        int64         // the highest resident memory so far, in bytes
}

// Inspect reads what a process has used.
func Inspect(pid int) (Process, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return Process{}, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	stat, err := proc.Stat()
	status, again := proc.NewStatus()
	if err = errors.Join(err, again); err != nil {
		return Process{}, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	return Process{
		Name: status.Name, CPU: time.Duration(stat.UTime+stat.STime) * clockTick, ChildrenCPU: time.Duration(stat.CUTime+stat.CSTime) * clockTick,
		SystemCPU: time.Duration(int(stat.STime)+stat.CSTime) * clockTick,
		RSS:       int64(status.VmRSS), Peak: int64(status.VmHWM),
	}, nil
}

// Children lists the running child processes of a process.
func Children(pid int) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // empty: the thread has ended
		for field := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(field) // the kernel writes numbers
			out = append(out, child)
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
	var m procfs.Meminfo
	fs, err := procfs.NewDefaultFS()
	if err == nil {
		m, err = fs.Meminfo()
	}
	if err != nil {
		return 0, fmt.Errorf("read the kernel's memory: %w", err)
	}
	return int64(*m.SUnreclaimBytes + *m.VmallocUsedBytes), nil
}
