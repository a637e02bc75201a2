package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"

	"golang.org/x/tools/go/packages"
)

// find returns all mutants of the packages that the patterns name.
func find(dir string, patterns []string) (names []string, found []*mutant, err error) {
	list, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: dir}, patterns...)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range list {
		for _, e := range p.Errors {
			return nil, nil, fmt.Errorf("read package %s: %w", p.PkgPath, e)
		}
		names = append(names, p.PkgPath)
		for _, syntax := range p.Syntax {
			f := &finder{pkg: p, info: p.TypesInfo, file: p.Fset.Position(syntax.FileStart).Filename, syntax: syntax}
			if f.source, err = os.ReadFile(f.file); err != nil {
				return nil, nil, err
			}
			ast.PreorderStack(syntax, nil, f.visit)
			found = append(found, f.found...)
		}
	}
	return names, found, nil
}

func (f *finder) visit(n ast.Node, parents []ast.Node) bool {
	f.parents = parents
	if isFixed(n) || f.isNoise(n) {
		return false
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.negate(n.Cond)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.BasicLit:
		f.offByOne(n)
	case *ast.Ident, *ast.SelectorExpr:
		f.swapConstant(n.(ast.Expr))
	case *ast.CompositeLit:
		f.literal(n)
	case *ast.CallExpr:
		f.call(n)
	case ast.Stmt:
		f.statement(n)
	}
	return true
}

// isFixed reports whether a node has nothing to change: a declaration other than of variables, or a type. The length of an
// array is a constant.
func isFixed(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.IMPORT || n.Tok == token.TYPE
	case *ast.ArrayType, *ast.FuncType, *ast.Field:
		return true
	}
	return false
}

func (f *finder) negate(cond ast.Expr) {
	if cond != nil {
		f.add(cond, "negated condition", "(zzMutant(%s) != bool(%s))", idMark, f.text(cond))
	}
}

// neighbors of operators: of comparisons, what differs at the boundary, and the opposite direction.
func neighbors(op token.Token) []token.Token {
	return map[token.Token][]token.Token{
		token.LSS: {token.LEQ, token.GTR}, token.LEQ: {token.LSS, token.GEQ},
		token.GTR: {token.GEQ, token.LSS}, token.GEQ: {token.GTR, token.LEQ},
		token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
		token.LAND: {token.LOR}, token.LOR: {token.LAND},
		token.ADD: {token.SUB}, token.SUB: {token.ADD},
	}[op]
}

// binary swaps an operator, and loses one of two flags. It leaves constants and strings alone.
func (f *finder) binary(e *ast.BinaryExpr) {
	whole := f.info.Types[e]
	name, ok := f.typeName(whole.Type)
	if e.Op == token.OR && ok && (whole.Value == nil || f.mayVary(e)) {
		f.add(e, "lost flag", "zzPick[%s](%s, %s, %s)", name, idMark, f.text(e.X), f.text(e))
	}
	basic, isBasic := whole.Type.Underlying().(*types.Basic)
	if whole.Value != nil || !ok || isBasic && basic.Info()&types.IsString != 0 {
		return
	}
	for _, op := range neighbors(e.Op) {
		f.add(e, "swapped "+e.Op.String()+" to "+op.String(), "zzEither(%s, func() %s { return %s %s %s }, func() %s { return %s })",
			idMark, name, f.text(e.X), op, f.text(e.Y), name, f.text(e))
	}
}

// offByOne adds one to a number.
func (f *finder) offByOne(lit *ast.BasicLit) {
	name, ok := f.typeName(f.info.Types[lit].Type)
	if lit.Kind == token.INT && ok && !f.isOrder(lit) && f.mayVary(lit) {
		f.add(lit, "off by one", "zzOneMore[%s](%s, %s)", name, idMark, lit.Value)
	}
}

// statement removes a statement that declares nothing and returns nothing.
func (f *finder) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	case *ast.BranchStmt:
		if s.Label != nil || s.Tok != token.CONTINUE {
			return
		}
	case *ast.ReturnStmt:
		if len(s.Results) > 0 {
			return
		}
	default:
		return
	}
	if p, ok := f.parent().(*ast.CommClause); ok && p.Comm == s {
		return // what the case waits for
	}
	switch f.parent().(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		f.add(s, "removed statement", "if !zzMutant(%s) { %s }", idMark, f.text(s))
	}
}
