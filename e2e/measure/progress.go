package measure

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Progress shows the current stage of a long program. A terminal shows one line that changes; a file gets a line for
// each stage.
type Progress struct {
	out      io.Writer
	terminal bool
	start    time.Time
	mu       sync.Mutex
	stage    string
}

// NewProgress returns a Progress that writes to a file, normally standard error.
func NewProgress(f *os.File) *Progress {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &Progress{out: f, terminal: err == nil, start: time.Now()}
}

// Stage begins a stage.
func (p *Progress) Stage(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = fmt.Sprintf(format, args...)
	p.line("\n", p.stage)
}

// Step shows how much of the stage is done, on a terminal only.
func (p *Progress) Step(done, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		p.line("", fmt.Sprintf("%s %d/%d", p.stage, done, of))
	}
}

// Done clears the line.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
}

func (p *Progress) line(end, text string) {
	at := time.Since(p.start).Truncate(time.Second)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\033[K%6s  %s", at, text)
		return
	}
	fmt.Fprintf(p.out, "%6s  %s%s", at, text, end)
}
