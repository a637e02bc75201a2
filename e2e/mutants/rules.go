package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// literal loses an element of a slice, and a field of a struct: a statement of a rule, a rule of a chain, a flag.
func (f *finder) literal(lit *ast.CompositeLit) {
	t := f.info.Types[lit].Type
	if t == nil {
		return
	}
	switch u := t.Underlying().(type) {
	case *types.Slice:
		if lit.Type == nil || slices.ContainsFunc(lit.Elts, keyed) || types.Identical(u.Elem(), types.Universe.Lookup("any").Type()) {
			return // a list of anything is for the log
		}
		for i := range lit.Elts {
			f.add(lit, "lost element", "zzWithout(%s, %d, %s)", idMark, i, f.text(lit))
		}
	case *types.Struct:
		for _, e := range lit.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			if name, ok := f.typeName(fieldType(u, kv.Key)); ok && !f.isZero(kv.Value) {
				f.add(kv.Value, "lost field "+f.text(kv.Key), "zzZero[%s](%s, %s)", name, idMark, f.text(kv.Value))
			}
		}
	}
}

func keyed(e ast.Expr) bool {
	_, ok := e.(*ast.KeyValueExpr)
	return ok
}

func fieldType(s *types.Struct, key ast.Expr) types.Type {
	for v := range s.Fields() {
		if id, ok := key.(*ast.Ident); ok && v.Name() == id.Name {
			return v.Type()
		}
	}
	return nil
}

// call loses an argument of a list, and swaps two arguments of the same type.
func (f *finder) call(c *ast.CallExpr) {
	signature, ok := f.info.Types[c.Fun].Type.(*types.Signature)
	if !ok || c.Ellipsis.IsValid() || f.info.Types[c.Fun].IsBuiltin() {
		return
	}
	fixed := signature.Params().Len()
	if signature.Variadic() {
		fixed--
	}
	if signature.Variadic() && !f.calls(c, formats) {
		f.lostArgument(c, signature.Params().At(fixed).Type().(*types.Slice).Elem(), fixed)
	}
	for i := range min(fixed, len(c.Args)) - 1 {
		a, b := c.Args[i], c.Args[i+1]
		name, ok := f.typeName(signature.Params().At(i).Type())
		same := types.Identical(signature.Params().At(i).Type(), signature.Params().At(i+1).Type())
		if ok && same && !f.calls(c, symmetric) && isName(a) && isName(b) && f.text(a) != f.text(b) {
			pair := &span{a, b}
			f.add(pair, "swapped arguments", "zzPick[%[1]s](%[2]s, %[4]s, %[3]s), zzPick[%[1]s](%[2]s, %[3]s, %[4]s)",
				name, idMark, f.text(a), f.text(b))
		}
	}
}

// lostArgument loses one of the arguments that a variadic function takes as a list.
func (f *finder) lostArgument(c *ast.CallExpr, element types.Type, fixed int) {
	name, ok := f.typeName(element)
	if !ok || len(c.Args) <= fixed {
		return
	}
	list := &span{c.Args[fixed], c.Args[len(c.Args)-1]}
	for i := range len(c.Args) - fixed {
		f.add(list, "lost argument", "zzWithout(%s, %d, []%s{%s})...", idMark, i, name, f.text(list))
	}
}

func isName(e ast.Expr) bool {
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return true
	}
	return false
}

// span is the text from one node to the end of another.
type span struct{ first, last ast.Node }

func (s *span) Pos() token.Pos { return s.first.Pos() }
func (s *span) End() token.Pos { return s.last.End() }

// swapConstant takes another constant of the same kind: the other family, another verdict, another map.
func (f *finder) swapConstant(e ast.Expr) {
	id, ok := e.(*ast.Ident)
	qualifier := ""
	if sel, isSelector := e.(*ast.SelectorExpr); isSelector {
		id, ok = sel.Sel, true
		qualifier = f.text(sel.X) + "."
	} else if _, isSelector := f.parent().(*ast.SelectorExpr); isSelector {
		return
	}
	if !ok {
		return
	}
	c, ok := f.info.Uses[id].(*types.Const)
	if !ok || c.Pkg() == nil || c.Parent() != c.Pkg().Scope() || !f.mayVary(e) {
		return
	}
	whole := f.info.Types[e].Type
	name, ok := f.typeName(whole)
	other := neighbor(c, whole)
	if ok && other != "" {
		f.add(e, "swapped constant to "+other, "zzPick[%s](%s, %s%s, %s)", name, idMark, qualifier, other, f.text(e))
	}
}

// neighbor is another constant of the same package and type whose value fits into the type of the expression: the next one
// by name. Constants without a type of their own must have names that begin alike.
func neighbor(c *types.Const, whole types.Type) string {
	scope := c.Pkg().Scope()
	_, named := c.Type().(*types.Named)
	var names []string
	for _, name := range scope.Names() {
		o, ok := scope.Lookup(name).(*types.Const)
		if ok && types.Identical(o.Type(), c.Type()) && (named || prefix(name) == prefix(c.Name())) && o.Exported() == c.Exported() &&
			fits(o.Val(), whole) && (o == c || constant.Compare(o.Val(), token.NEQ, c.Val())) {
			names = append(names, name)
		}
	}
	i := slices.Index(names, c.Name())
	if i < 0 || len(names) < 2 {
		return ""
	}
	return names[(i+1)%len(names)]
}

// fits reports whether a number is a value of an integer type. What is no number fits.
func fits(v constant.Value, t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsInteger == 0 {
		return true
	}
	n, exact := constant.Int64Val(constant.ToInt(v))
	bits := 8 * types.SizesFor("gc", "amd64").Sizeof(types.Default(basic))
	if basic.Info()&types.IsUnsigned != 0 {
		return exact && n >= 0 && (bits == 64 || n < 1<<bits)
	}
	return exact && n >= -1<<(bits-1) && n <= 1<<(bits-1)-1
}

// prefix is the part of a name that kinds of constants share: NFT_ of NFT_JUMP, map of mapServices.
func prefix(name string) string {
	if before, _, ok := strings.Cut(name, "_"); ok {
		return before
	}
	end := strings.IndexFunc(name[1:], func(r rune) bool { return r >= 'A' && r <= 'Z' })
	return name[:end+1]
}
