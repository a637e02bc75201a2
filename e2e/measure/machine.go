package measure

import (
	"cmp"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Machine is the machine on which figures were measured, and the time. Figures mean nothing without it.
type Machine struct {
	CPU    string
	Cores  int
	Memory int
	Kernel string
	Go     string
	Date   time.Time
	// Load is the load average of the last minute at the start: other work on the machine falsifies figures.
	Load string
}

// ThisMachine describes the machine that the program runs on.
func ThisMachine() Machine {
	m := Machine{CPU: cpuModel(), Cores: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().UTC().Truncate(time.Second)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int(info.Totalram * uint64(info.Unit) >> 20)
		m.Load = fmt.Sprintf("%.1f", float64(info.Loads[0])/(1<<16))
	}
	return m
}

// String is one human-readable line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %d MiB, Linux %s, %s, %s, load %s",
		m.CPU, m.Cores, m.Memory, m.Kernel, m.Go, m.Date.Format("2006-01-02 15:04 MST"), m.Load)
}

// cpuModel is the name of the first processor, or else the architecture.
func cpuModel() string {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if list, err := fs.CPUInfo(); err == nil && len(list) > 0 {
			return cmp.Or(list[0].ModelName, runtime.GOARCH)
		}
	}
	return runtime.GOARCH
}
