package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/packages"
)

// mutant is one change: the text from begin to end becomes new, in which idMark is the number of the mutant. The new text
// does what the old one did, unless the process runs this mutant.
type mutant struct {
	id         int
	pkg        *packages.Package
	file       string
	begin, end int // offsets in the file
	at         token.Position
	operator   string
	old, new   string
}

const idMark = "\x00"

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", m.at.Filename, m.at.Line, m.operator, strings.Join(strings.Fields(m.old), " "))
}

// finder collects the mutants of a file.
type finder struct {
	pkg     *packages.Package
	info    *types.Info
	file    string
	source  []byte
	syntax  *ast.File
	parents []ast.Node // of the current node
	found   []*mutant
}

// parent is the node around the current one.
func (f *finder) parent() ast.Node {
	if len(f.parents) == 0 {
		return nil
	}
	return f.parents[len(f.parents)-1]
}

func (f *finder) offset(p token.Pos) int { return f.pkg.Fset.Position(p).Offset }

// text is the source of a node.
func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) add(n ast.Node, operator, format string, args ...any) {
	f.found = append(f.found, &mutant{
		pkg: f.pkg, file: f.file, begin: f.offset(n.Pos()), end: f.offset(n.End()), at: f.pkg.Fset.Position(n.Pos()),
		operator: operator, old: f.text(n), new: fmt.Sprintf(format, args...),
	})
}

// mayVary reports whether a constant may become a call: it is no part of a larger constant, no key, and no label of a
// switch over types.
func (f *finder) mayVary(e ast.Expr) bool {
	switch p := f.parent().(type) {
	case *ast.KeyValueExpr:
		return p.Key != e
	case *ast.CaseClause:
		return false // the compiler rejects duplicates, and jump tables need constants
	case ast.Expr:
		if tv, ok := f.info.Types[p]; ok && tv.Value != nil {
			return false
		}
		if b, ok := p.(*ast.BinaryExpr); ok && (b.Op.String() == "<<" || b.Op.String() == ">>") {
			return false
		}
		if c, ok := p.(*ast.CallExpr); ok && f.info.Types[c.Fun].IsType() {
			return false
		}
	}
	return true
}

// typeName is how the file can name a type, if it can.
func (f *finder) typeName(t types.Type) (name string, ok bool) {
	if t == nil {
		return "", false
	}
	ok = true
	name = types.TypeString(types.Default(t), func(p *types.Package) string {
		if p.Path() == f.pkg.PkgPath {
			return ""
		}
		for _, spec := range f.syntax.Imports {
			if strings.Trim(spec.Path.Value, `"`) != p.Path() {
				continue
			}
			if spec.Name != nil {
				return spec.Name.Name
			}
			return p.Name()
		}
		ok = false
		return p.Name()
	})
	if named, isNamed := t.(*types.Named); isNamed {
		o := named.Obj()
		ok = ok && (o.Exported() || o.Pkg() == nil || o.Pkg().Path() == f.pkg.PkgPath)
	}
	_, isParameter := t.(*types.TypeParam)
	_, isTuple := t.(*types.Tuple)
	basic, isBasic := t.(*types.Basic)
	if isParameter || isTuple || isBasic && basic.Kind() == types.UntypedNil || strings.ContainsAny(name, "\n") {
		return "", false
	}
	return name, ok
}
