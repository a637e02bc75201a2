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

// atMost limits the time of the demo, which takes a few seconds even on a slow machine.
const atMost = time.Minute

const mountNamespace = "/proc/self/ns/mnt"

// stage is the demo inside its namespaces.
type stage struct {
	outside  string // the mount namespace of the process outside
	rootless bool
	scene    string
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
	err = tell(limited, newScreen(s.out), dir, s.scene, s.rootless)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ExitError{Code: ExitInterrupted} // the process outside prints the message
	case limited.Err() != nil:
		return fmt.Errorf("demo: not finished within %v: %w", atMost, err)
	}
	return fmt.Errorf("demo: %w", err)
}

// inside returns an error if this process runs in the namespaces of the machine, which the demo must not change.
func (s *stage) inside() error {
	own, err := os.Readlink(mountNamespace)
	if err != nil {
		return fmt.Errorf("demo: find the mount namespace of this process: %w", err)
	}
	if os.Getpid() != 1 || s.outside == "" || s.outside == own {
		return errors.New(`demo: this command works only when "verdict demo" starts it; run that instead`)
	}
	return nil
}

// privateFolder creates a folder that only this process and its children see. It disappears when they end.
func privateFolder() (string, error) {
	// Otherwise the new mount would be visible outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("demo: make mounts private: %w; nothing was changed", err)
	}
	temp := os.TempDir()
	if err := unix.Mount("tmpfs", temp, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700,size=16m"); err != nil {
		return "", fmt.Errorf("demo: mount a private folder over %s: %w; nothing was changed", temp, err)
	}
	dir := filepath.Join(temp, "verdict-demo")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("demo: create a folder for manifests: %w", err)
	}
	return dir, nil
}
