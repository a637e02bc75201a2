package main

import (
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

// isNoise reports whether no test could or should notice a change of a node: it only writes the log, reserves memory, or is
// a part that vet checks.
func (f *finder) isNoise(n ast.Node) bool {
	if call, ok := f.parent().(*ast.CallExpr); ok && f.isCapacity(call, n) {
		return true
	}
	switch n := n.(type) {
	case *ast.ExprStmt:
		return f.isNoise(n.X)
	case *ast.AssignStmt:
		return len(n.Rhs) == 1 && f.isNoise(n.Rhs[0])
	case *ast.CallExpr:
		return f.calls(n, quiet)
	}
	return false
}

// The calls whose arguments are special, by the full names of their functions.
const (
	quiet     = `^slices\.Grow$|\)\.Grow$|^log/slog\.|^\(\*log/slog\.Logger\)` // a call reserves memory or writes the log
	symmetric = `^(slices|maps|bytes)\.Equal$|^reflect\.DeepEqual$`            // the order of arguments does not matter
	formats   = `^fmt\.`                                                       // vet compares the arguments with the format
)

// calls reports whether a call is one of those.
func (f *finder) calls(call *ast.CallExpr, those string) bool {
	fn, ok := typeutil.Callee(f.info, call).(*types.Func)
	return ok && regexp.MustCompile(those).MatchString(fn.Origin().FullName())
}

// isZero reports whether an expression is the zero of its type, so that a field without it is the same.
func (f *finder) isZero(e ast.Expr) bool {
	tv := f.info.Types[e]
	if tv.IsNil() {
		return true
	}
	if tv.Value == nil {
		return false
	}
	switch tv.Value.Kind() {
	case constant.Bool:
		return !constant.BoolVal(tv.Value)
	case constant.String:
		return constant.StringVal(tv.Value) == ""
	}
	return constant.Sign(tv.Value) == 0
}

// isOrder reports whether a number is what a comparison of two values returns: only its sign counts.
func (f *finder) isOrder(lit *ast.BasicLit) bool {
	if _, ok := f.parent().(*ast.ReturnStmt); !ok || lit.Value != "1" {
		return false
	}
	for _, p := range slices.Backward(f.parents) {
		switch p := p.(type) {
		case *ast.FuncLit:
			return isComparison(p.Type)
		case *ast.FuncDecl:
			return isComparison(p.Type)
		}
	}
	return false
}

func isComparison(t *ast.FuncType) bool {
	return t.Results.NumFields() == 1 && len(t.Params.List) == 1 && len(t.Params.List[0].Names) == 2
}

// isCapacity reports whether a node is what a call of make reserves for later.
func (f *finder) isCapacity(call *ast.CallExpr, n ast.Node) bool {
	if !f.info.Types[call.Fun].IsBuiltin() || f.text(call.Fun) != "make" || len(call.Args) < 2 {
		return false
	}
	_, isMap := f.info.Types[call].Type.Underlying().(*types.Map)
	return n == call.Args[len(call.Args)-1] && (isMap || len(call.Args) == 3)
}
