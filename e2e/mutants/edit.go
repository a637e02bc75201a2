package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// choose draws n mutants that do not overlap and numbers them from 1. Every mutant is equally likely.
func choose(all []*mutant, n int, seed uint64) (out []*mutant) {
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	taken := map[string][]*mutant{}
	for _, m := range all {
		if len(out) == n {
			break
		}
		overlaps := func(o *mutant) bool { return m.begin < o.end && o.begin < m.end }
		if !slices.ContainsFunc(taken[m.file], overlaps) {
			taken[m.file] = append(taken[m.file], m)
			m.id = len(out) + 1
			out = append(out, m)
		}
	}
	return out
}

// helpers is the file that each package with mutants gets.
const helpers = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var zzActive, _ = strconv.Atoi(os.Getenv("MUTANT"))

var zzFile = os.Getenv("MUTANTS_REACHED")

var zzReached sync.Map

func zzMutant(id int) bool {
	if zzActive == 0 && zzFile != "" {
		if _, before := zzReached.LoadOrStore(id, true); !before {
			f, err := os.OpenFile(zzFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
			if err == nil {
				f.WriteString(strconv.Itoa(id) + "\n")
				f.Close()
			}
		}
	}
	return id == zzActive
}

func zzPick[T any](id int, other, usual T) T {
	if zzMutant(id) {
		return other
	}
	return usual
}

func zzEither[T any](id int, other, usual func() T) T { return zzPick(id, other, usual)() }

func zzZero[T any](id int, usual T) T {
	var zero T
	return zzPick(id, zero, usual)
}

func zzOneMore[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float64 | ~float32](id int, n T) T {
	return zzPick(id, n+1, n)
}

func zzWithout[S ~[]E, E any](id, i int, list S) S {
	if !zzMutant(id) {
		return list
	}
	return append(list[:i:i], list[i+1:]...)
}
`

// overlay writes copies of the files with mutants, and the list of them for the go command. It returns the list's name.
func overlay(dir string, chosen []*mutant) (string, error) {
	replace := map[string]string{}
	write := func(path, text string) error {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		return os.WriteFile(replace[path], []byte(text), 0o644)
	}
	files := map[string][]*mutant{}
	for _, m := range chosen {
		files[m.file] = append(files[m.file], m)
		helper := filepath.Join(m.pkg.Dir, "zz_mutants.go")
		if _, ok := replace[helper]; !ok {
			if err := write(helper, fmt.Sprintf(helpers, m.pkg.Name)); err != nil {
				return "", err
			}
		}
	}
	for path, list := range files {
		source, err := os.ReadFile(path)
		if err == nil {
			err = write(path, rewrite(source, list))
		}
		if err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o644)
}

// rewrite returns the source of a file with all its mutants.
func rewrite(source []byte, list []*mutant) string {
	slices.SortFunc(list, func(a, b *mutant) int { return a.begin - b.begin })
	var b strings.Builder
	done := 0
	for _, m := range list {
		b.Write(source[done:m.begin])
		b.WriteString(strings.ReplaceAll(m.new, idMark, fmt.Sprint(m.id)))
		done = m.end
	}
	b.Write(source[done:])
	return b.String()
}
