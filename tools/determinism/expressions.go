package determinism

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// bareCall looks at a call whose result is not used.
func (r *region) bareCall(s *ast.ExprStmt) *leak {
	call, ok := ast.Unparen(s.X).(*ast.CallExpr)
	if !ok {
		return r.expr(s.X)
	}
	info := r.c.pass.TypesInfo
	switch {
	case isBuiltin(info, call, "delete"):
		if o := r.object(call.Args[0]); r.inner(o) && r.fresh[o] {
			return r.expr(call.Args[1])
		}
		class := "delete"
		if r.isOwnKey(call.Args[1]) {
			class = "own key"
		}
		path := types.ExprString(call.Args[0])
		return firstLeak(func() *leak { return r.expr(call.Args[1]) }, func() *leak {
			return r.record(s.Pos(), path, class, class == "delete" && !r.mentionsInner(call.Args[1]))
		})
	case isBuiltin(info, call, "panic"):
		return r.expr(call.Args[0])
	}
	return r.expr(call)
}

// expr looks at an expression: it may call only what changes nothing, and read nothing that the loop
// changes.
func (r *region) expr(e ast.Expr) (found *leak) {
	if e == nil {
		return nil
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if found != nil {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			found = r.funcLit(n)
			return false
		case *ast.CallExpr:
			found = r.call(n)
			return false
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				found = &leak{n.Pos(), "receives from a channel"}
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok {
				if v, ok := r.c.pass.TypesInfo.ObjectOf(id).(*types.Var); ok && v.IsField() {
					found = r.expr(n.Value)
					return false
				}
			}
		case *ast.IndexExpr:
			if r.isOwnKey(n.Index) && r.how[types.ExprString(n.X)] != "delete" && coreIs[*types.Map](r.c.pass.TypesInfo.TypeOf(n.X)) {
				return false // its own element: no other iteration changes it, or mapRange says so
			}
		case *ast.SelectorExpr, *ast.Ident:
			if path, ok := pathOf(n.(ast.Expr)); ok {
				found = r.read(n.(ast.Expr), path)
				return false
			}
		}
		return true
	})
	return found
}

// pathOf returns x or x.f.g as text.
func pathOf(e ast.Expr) (string, bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name, true
	case *ast.SelectorExpr:
		p, ok := pathOf(e.X)
		return p + "." + e.Sel.Name, ok
	}
	return "", false
}

// read looks at the use of a variable's value.
func (r *region) read(e ast.Expr, path string) *leak {
	if v, ok := r.object(e).(*types.Var); ok && r.inner(v) && !isPointer(v.Type()) {
		return nil
	}
	for _, c := range r.changed {
		if c == path || strings.HasPrefix(c, path+".") || strings.HasPrefix(path, c+".") {
			return &leak{e.Pos(), fmt.Sprintf("reads %s, which the loop changes", path)}
		}
	}
	return nil
}

// funcLit looks at a function that something pure may call, or not.
func (r *region) funcLit(f *ast.FuncLit) *leak {
	in := r.c.region(f)
	in.changed = r.changed
	return in.statements(f.Body, f.Body.List, true)
}

func (r *region) call(call *ast.CallExpr) *leak {
	info := r.c.pass.TypesInfo
	if l := r.called(call); l != nil {
		return l
	}
	for _, a := range call.Args {
		if l := r.expr(a); l != nil {
			return l
		}
		if _, is := info.TypeOf(a).Underlying().(*types.Signature); is && !info.Types[a].IsNil() {
			if _, lit := ast.Unparen(a).(*ast.FuncLit); !lit {
				if f := named(info, a); f == nil || !r.c.isPure(f) {
					return &leak{a.Pos(), "passes on " + types.ExprString(a) + ", which may change something"}
				}
			}
		}
	}
	return nil
}

// called looks at what a call calls.
func (r *region) called(call *ast.CallExpr) *leak {
	info := r.c.pass.TypesInfo
	if tv := info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		if isBuiltin(info, call, "copy", "clear", "close", "print", "println", "recover", "delete") && !r.ownFirst(call) {
			return &leak{call.Pos(), "calls " + types.ExprString(call.Fun)}
		}
		return nil
	}
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		return r.funcLit(lit)
	}
	f := callee(info, call)
	if f == nil {
		return &leak{call.Pos(), "calls " + types.ExprString(call.Fun) + ", a function value"}
	}
	sel, isMethod := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	isMethod = isMethod && f.Signature().Recv() != nil
	if isMethod && r.ownValue(sel.X) && f.Pkg() != nil && slices.Contains([]string{"strings", "bytes"}, f.Pkg().Path()) {
		return nil // a Builder or Buffer of the iteration's own
	}
	if !r.c.isPure(f) && !r.sortsOwn(f, call) {
		return &leak{call.Pos(), "calls " + types.ExprString(call.Fun) + ", which may change something"}
	}
	if isMethod {
		return r.expr(sel.X)
	}
	return nil
}

// ownFirst and ownValue report whether only the iteration sees what is changed.
func (r *region) ownFirst(call *ast.CallExpr) bool {
	o := r.object(call.Args[0])
	return len(call.Args) > 0 && r.inner(o) && r.fresh[o]
}

func (r *region) ownValue(e ast.Expr) bool {
	v, ok := r.object(e).(*types.Var)
	return ok && r.inner(v) && !isPointer(v.Type())
}

// sortsOwn reports whether a call sorts a slice that only the iteration sees.
func (r *region) sortsOwn(f *types.Func, call *ast.CallExpr) bool {
	return len(call.Args) > 0 && r.c.sorts(f) && r.ownFirst(call)
}

// named returns the function that an expression names.
func named(info *types.Info, e ast.Expr) *types.Func {
	return callee(info, &ast.CallExpr{Fun: e})
}
