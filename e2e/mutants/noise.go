package main

import (
	"go/ast"
	"go/types"
	"strings"
)

// isNoise reports whether no test could or should notice a change of a node: it only writes the log, reserves memory, or is
// a part that vet checks.
func (f *finder) isNoise(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		return f.isNoise(n.X)
	case *ast.AssignStmt:
		return len(n.Rhs) == 1 && f.isNoise(n.Rhs[0])
	case *ast.CallExpr:
		name := f.callee(n)
		return name == "slices.Grow" || strings.HasSuffix(name, ").Grow") || f.isLog(n)
	}
	call, ok := f.parent().(*ast.CallExpr)
	return ok && f.isCapacity(call, n)
}

// isLog reports whether a call is one of package slog.
func (f *finder) isLog(call *ast.CallExpr) bool {
	name := f.callee(call)
	return strings.HasPrefix(name, "log/slog.") || strings.HasPrefix(name, "(*log/slog.Logger)")
}

// isCapacity reports whether a node is what a call of make reserves for later.
func (f *finder) isCapacity(call *ast.CallExpr, n ast.Node) bool {
	if !f.pkg.info.Types[call.Fun].IsBuiltin() || f.text(call.Fun) != "make" || len(call.Args) < 2 {
		return false
	}
	_, isMap := f.pkg.info.Types[call].Type.Underlying().(*types.Map)
	return n == call.Args[len(call.Args)-1] && (isMap || len(call.Args) == 3)
}

// isFormat reports whether a call formats text. Vet compares its arguments with the format.
func (f *finder) isFormat(call *ast.CallExpr) bool {
	return strings.HasPrefix(f.callee(call), "fmt.")
}

// callee is the full name of the function or method that a call names.
func (f *finder) callee(call *ast.CallExpr) string {
	fun := ast.Unparen(call.Fun)
	if sel, ok := fun.(*ast.SelectorExpr); ok {
		fun = sel.Sel
	}
	if id, ok := fun.(*ast.Ident); ok {
		if fn, ok := f.pkg.info.Uses[id].(*types.Func); ok {
			return fn.Origin().FullName()
		}
	}
	return ""
}
