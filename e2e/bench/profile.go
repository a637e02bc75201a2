package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// profileSeconds is the duration of the changes that the profile of churn covers.
const profileSeconds = 10

// profile writes CPU and heap profiles of first synchronizations and of churn into a folder.
func profile(dir string, services int, progress *measure.Progress) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c := newCluster(services, perService)
	progress.Stage("first sync of %s services", measure.Count(services))
	if err := cpuProfile(filepath.Join(dir, "first-sync.cpu"), func() error { return repeat(c, 3) }); err != nil {
		return err
	}
	_, err = syncOnce(c, false, func(w *world) error {
		progress.Stage("churn with %s services", measure.Count(services))
		return errors.Join(
			heapProfile(filepath.Join(dir, "first-sync.heap")),
			cpuProfile(filepath.Join(dir, "churn.cpu"), func() error { return churn(w, c) }),
			heapProfile(filepath.Join(dir, "churn.heap")),
		)
	})
	if err == nil {
		progress.Stage("changes of one service with %s endpoints", measure.Count(bigEndpoints))
		err = profileBig(dir)
	}
	if err == nil {
		fmt.Println("profiles in", dir+"; read them with: go tool pprof -top", filepath.Join(dir, "churn.cpu"))
	}
	return err
}

// profileBig writes a profile of churn in a single Service with many endpoints.
func profileBig(dir string) error {
	c := newBigCluster()
	_, err := syncOnce(c, false, func(w *world) error {
		return cpuProfile(filepath.Join(dir, "large.cpu"), func() error { return churn(w, c) })
	})
	return err
}

// repeat makes n first synchronizations.
func repeat(c *cluster, n int) error {
	for range n {
		runtime.GC()
		if _, err := syncOnce(c, true, nothing); err != nil {
			return err
		}
	}
	return nil
}

// churn replaces endpoints one after the other without a pause.
func churn(w *world, c *cluster) error {
	for end := time.Now().Add(profileSeconds * time.Second); time.Now().Before(end); {
		sl := c.replaceOne(c.pick())
		if _, _, err := w.do(func() { w.store.SetSlice(sl, nil) }); err != nil {
			return err
		}
	}
	return nil
}

func cpuProfile(name string, work func() error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("start the CPU profile %s: %w", name, err)
	}
	defer pprof.StopCPUProfile()
	return work()
}

func heapProfile(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	runtime.GC()
	return pprof.WriteHeapProfile(f)
}
