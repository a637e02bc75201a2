package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// atMost is how long the demo may take: it needs a few seconds, also on a slow machine.
const atMost = time.Minute

const mountNamespace = "/proc/self/ns/mnt"

// stage is the demo inside its namespaces.
type stage struct {
	outside  string // mount namespace of the program outside
	rootless bool
	out      io.Writer
}

func (s *stage) run(ctx context.Context) error {
	if err := s.inside(); err != nil {
		return err
	}
	dir, err := privateFolder()
	if err != nil {
		return err
	}
	limited, stop := context.WithTimeout(ctx, atMost)
	defer stop()
	err = tell(limited, newScreen(s.out), dir, s.rootless)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ExitError{Code: ExitInterrupted} // the program outside says it
	case limited.Err() != nil:
		return fmt.Errorf("demo: not finished within %v: %w", atMost, err)
	}
	return fmt.Errorf("demo: %w", err)
}

// inside makes sure that the namespaces are not those of the machine, whose folders and links would suffer.
func (s *stage) inside() error {
	own, err := os.Readlink(mountNamespace)
	if err != nil {
		return fmt.Errorf("demo: find the own mount namespace: %w", err)
	}
	if os.Getpid() != 1 || s.outside == "" || s.outside == own {
		return errors.New(`demo: this command works only when "verdict demo" starts it; call that instead`)
	}
	return nil
}

// privateFolder makes a folder that only this process and its children see and that goes with them.
func privateFolder() (string, error) {
	// Otherwise the mount would show up outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("demo: keep mounts private: %w; nothing was changed", err)
	}
	temp := os.TempDir()
	if err := unix.Mount("tmpfs", temp, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700,size=16m"); err != nil {
		return "", fmt.Errorf("demo: mount a private folder over %s: %w; nothing was changed", temp, err)
	}
	dir := filepath.Join(temp, "verdict-demo")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("demo: make a folder for manifests: %w", err)
	}
	return dir, nil
}
