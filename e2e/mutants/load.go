package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// pkg is a package with the syntax and the types of its files.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	Export     string
	DepOnly    bool

	files   map[string]*ast.File
	sources map[string][]byte
	info    *types.Info
}

// load lists packages, and reads the types of those that the patterns name.
func load(dir string, fset *token.FileSet, patterns []string) ([]*pkg, error) {
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Name,Dir,GoFiles,Export,DepOnly", "--"}
	text, err := command(dir, nil, "go", append(args, patterns...)...)
	if err != nil {
		return nil, err
	}
	exports, out := map[string]string{}, []*pkg{}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			out = append(out, p)
		}
	}
	find := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	imports := importer.ForCompiler(fset, "gc", find)
	for _, p := range out {
		if err := p.check(fset, imports); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check parses the files of a package and finds the types of its expressions.
func (p *pkg) check(fset *token.FileSet, imports types.Importer) error {
	p.files, p.sources = map[string]*ast.File{}, map[string][]byte{}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var list []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files[path], p.sources[path] = file, source
		list = append(list, file)
	}
	if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, list, p.info); err != nil {
		return fmt.Errorf("find the types of %s: %w", p.ImportPath, err)
	}
	return nil
}

// command runs a program in a folder and returns its standard output.
func command(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var errText bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &errText
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s", cmd, err, errText.Bytes())
	}
	return out, nil
}
