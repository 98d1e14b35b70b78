package determinism

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// leak is a place where the order of a loop could show, and how.
type leak struct {
	pos token.Pos
	why string
}

// region is a piece of code whose effects are looked at: the body of a loop over a map, or a
// function. What is declared inside it is its own business; what it changes outside counts.
type region struct {
	c     *checker
	node  ast.Node
	loop  *ast.RangeStmt // nil for a function, which may change nothing outside
	after *ast.BlockStmt // the function around the loop, where a slice may be sorted later
	fresh map[types.Object]bool
	// changed are the paths (x, x.f) that the loop changes: reading one would show how many of the
	// other iterations came before.
	changed []string
	// how is the way in which a path is changed. Two different ways do not commute.
	how   map[string]string
	block ast.Node // the innermost list of statements at hand
	ways  []change
	exits []exit
}

// change is one assignment to something outside; exit a statement that ends the loop early.
type (
	change struct {
		pos      token.Pos
		block    ast.Node
		constant bool
	}
	exit struct {
		pos   token.Pos
		block ast.Node
		text  string
	}
)

// isPure reports whether a function changes nothing that others can see.
func (c *checker) isPure(f *types.Func) bool {
	if knownPure(f) {
		return true
	}
	decl := c.decls[f]
	if decl == nil {
		return false
	}
	if p, ok := c.pure[f]; ok {
		return p
	}
	c.pure[f] = true // for recursion
	r := c.region(decl)
	p := r.statements(decl.Body, decl.Body.List, true) == nil
	c.pure[f] = p
	return p
}

func (c *checker) region(n ast.Node) *region {
	r := &region{c: c, node: n, how: make(map[string]string), fresh: make(map[types.Object]bool)}
	r.findFresh()
	return r
}

// inner reports whether an object is declared in the region.
func (r *region) inner(o types.Object) bool {
	return o != nil && r.node.Pos() <= o.Pos() && o.Pos() < r.node.End()
}

func (r *region) object(e ast.Expr) types.Object {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		return r.c.pass.TypesInfo.ObjectOf(id)
	}
	return nil
}

// findFresh finds the variables of the region that hold only what the region itself made, so that
// nobody else sees a change of an element.
func (r *region) findFresh() {
	set := func(lhs, rhs ast.Expr) {
		o := r.object(lhs)
		if !r.inner(o) {
			return
		}
		is := rhs == nil || r.isFresh(rhs, o)
		if old, seen := r.fresh[o]; seen {
			is = is && old
		}
		r.fresh[o] = is
	}
	notFresh := ast.NewIdent("_")
	ast.Inspect(r.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if len(n.Rhs) == len(n.Lhs) {
					set(l, n.Rhs[i])
				} else {
					set(l, notFresh)
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				switch {
				case len(n.Values) == 0:
					set(name, nil)
				case len(n.Values) == len(n.Names):
					set(name, n.Values[i])
				default:
					set(name, notFresh)
				}
			}
		}
		return true
	})
}

func (r *region) isFresh(e ast.Expr, self types.Object) bool {
	info := r.c.pass.TypesInfo
	switch e := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		_, lit := ast.Unparen(e.X).(*ast.CompositeLit)
		return e.Op == token.AND && lit
	case *ast.Ident:
		return info.Types[e].IsNil() || r.object(e) == self
	case *ast.SliceExpr:
		return r.isFresh(e.X, self)
	case *ast.CallExpr:
		if isBuiltin(info, e, "make", "new") {
			return true
		}
		if isBuiltin(info, e, "append") {
			return r.isFresh(e.Args[0], self)
		}
		if f := callee(info, e); f != nil && f.Pkg() != nil {
			switch f.Pkg().Path() {
			case "slices":
				return slices.Contains([]string{"Clone", "Collect", "Sorted", "SortedFunc", "Concat"}, f.Name())
			case "maps":
				return slices.Contains([]string{"Clone", "Collect"}, f.Name())
			}
		}
	}
	return false
}

// outside returns the path that an assignment to e changes outside the region, "" if none; keyed is
// the index if an element of a map, slice or array is assigned, and then the path is the whole's.
func (r *region) outside(e ast.Expr) (path string, keyed ast.Expr) {
	info := r.c.pass.TypesInfo
	e = ast.Unparen(e)
	own := func(x ast.Expr) bool { o := r.object(x); return r.inner(o) && r.fresh[o] }
	switch e := e.(type) {
	case *ast.Ident:
		if o := r.object(e); e.Name == "_" || r.inner(o) {
			return "", nil
		}
	case *ast.SelectorExpr:
		if own(e.X) {
			return "", nil
		}
		if sel := info.Selections[e]; sel != nil && !sel.Indirect() && !isPointer(info.TypeOf(e.X)) {
			if p, _ := r.outside(e.X); p == "" {
				return "", nil
			}
		}
	case *ast.IndexExpr:
		if own(e.X) {
			return "", nil
		}
		if coreIs[*types.Array](info.TypeOf(e.X)) {
			if p, _ := r.outside(e.X); p == "" {
				return "", nil
			}
		}
		return types.ExprString(e.X), e.Index
	case *ast.StarExpr:
		if own(e.X) {
			return "", nil
		}
	}
	return types.ExprString(e), nil
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// statements looks at a list of statements; breaks tells whether a break stays in the region.
func (r *region) statements(block ast.Node, list []ast.Stmt, breaks bool) *leak {
	outer := r.block
	r.block = block
	defer func() { r.block = outer }()
	for _, s := range list {
		if l := r.statement(s, breaks); l != nil {
			return l
		}
	}
	return nil
}

func (r *region) statement(s ast.Stmt, breaks bool) *leak {
	switch s := s.(type) {
	case nil, *ast.EmptyStmt:
		return nil
	case *ast.BlockStmt:
		return r.statements(s, s.List, breaks)
	case *ast.DeclStmt:
		return r.declaration(s)
	case *ast.AssignStmt:
		return r.assign(s)
	case *ast.IncDecStmt:
		return r.target(s.X, "add", nil)
	case *ast.ExprStmt:
		return r.bareCall(s)
	case *ast.IfStmt:
		return r.ifElse(s, breaks)
	case *ast.ForStmt:
		return firstLeak(
			func() *leak { return r.statement(s.Init, true) }, func() *leak { return r.expr(s.Cond) },
			func() *leak { return r.statement(s.Post, true) }, func() *leak { return r.statement(s.Body, true) })
	case *ast.RangeStmt:
		return firstLeak(func() *leak { return r.expr(s.X) }, func() *leak { return r.rangeTargets(s) },
			func() *leak { return r.rangedFunc(s) }, func() *leak { return r.statement(s.Body, true) })
	case *ast.SwitchStmt:
		return firstLeak(func() *leak { return r.statement(s.Init, true) }, func() *leak { return r.expr(s.Tag) },
			func() *leak { return r.cases(s.Body) })
	case *ast.TypeSwitchStmt:
		return firstLeak(func() *leak { return r.statement(s.Init, true) }, func() *leak { return r.asserted(s.Assign) },
			func() *leak { return r.cases(s.Body) })
	case *ast.LabeledStmt:
		return r.statement(s.Stmt, breaks)
	case *ast.BranchStmt:
		return r.branch(s, breaks)
	case *ast.ReturnStmt:
		return r.returns(s)
	}
	return &leak{s.Pos(), "does what cannot be followed (defer, go, select or a channel)"}
}

// asserted looks at the x of switch v := x.(type); each clause has a v of its own.
func (r *region) asserted(s ast.Stmt) *leak {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return r.expr(s.Rhs[0])
	case *ast.ExprStmt:
		return r.expr(s.X)
	}
	return nil
}

func firstLeak(steps ...func() *leak) *leak {
	for _, f := range steps {
		if l := f(); l != nil {
			return l
		}
	}
	return nil
}

func (r *region) cases(b *ast.BlockStmt) *leak {
	for _, s := range b.List {
		c := s.(*ast.CaseClause)
		for _, e := range c.List {
			if l := r.expr(e); l != nil {
				return l
			}
		}
		if l := r.statements(c, c.Body, true); l != nil {
			return l
		}
	}
	return nil
}

func (r *region) declaration(s *ast.DeclStmt) *leak {
	for _, spec := range s.Decl.(*ast.GenDecl).Specs {
		if v, ok := spec.(*ast.ValueSpec); ok {
			for _, e := range v.Values {
				if l := r.expr(e); l != nil {
					return l
				}
			}
		}
	}
	return nil
}

func (r *region) ifElse(s *ast.IfStmt, breaks bool) *leak {
	if l := r.statement(s.Init, true); l != nil {
		return l
	}
	if class, path := r.bound(s); class != "" {
		return r.record(s.Pos(), path, class, false)
	}
	return firstLeak(func() *leak { return r.expr(s.Cond) }, func() *leak { return r.statement(s.Body, breaks) },
		func() *leak { return r.statement(s.Else, breaks) })
}

// bound recognises if x < e { x = e }, which leaves the greatest e whatever the order.
func (r *region) bound(s *ast.IfStmt) (class, path string) {
	cond, ok := ast.Unparen(s.Cond).(*ast.BinaryExpr)
	if !ok || s.Else != nil || len(s.Body.List) != 1 || !slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, cond.Op) {
		return "", ""
	}
	a, ok := s.Body.List[0].(*ast.AssignStmt)
	if !ok || a.Tok != token.ASSIGN || len(a.Lhs) != 1 {
		return "", ""
	}
	x, e := types.ExprString(a.Lhs[0]), types.ExprString(a.Rhs[0])
	one, two := types.ExprString(cond.X), types.ExprString(cond.Y)
	less := cond.Op == token.LSS || cond.Op == token.LEQ
	if one == e && two == x {
		one, two, less = two, one, !less
	}
	path, keyed := r.outside(a.Lhs[0])
	if one != x || two != e || path == "" || keyed != nil || r.expr(a.Rhs[0]) != nil {
		return "", ""
	}
	if less {
		return "max", path
	}
	return "min", path
}

func (r *region) rangeTargets(s *ast.RangeStmt) *leak {
	if s.Tok != token.ASSIGN {
		return nil
	}
	for _, e := range []ast.Expr{s.Key, s.Value} {
		if e != nil {
			if p, _ := r.outside(e); p != "" {
				return &leak{e.Pos(), fmt.Sprintf("leaves its last value in %s", p)}
			}
		}
	}
	return nil
}

// rangedFunc refuses a range over a function that could change something.
func (r *region) rangedFunc(s *ast.RangeStmt) *leak {
	if _, ok := r.c.pass.TypesInfo.TypeOf(s.X).Underlying().(*types.Signature); ok {
		if _, call := ast.Unparen(s.X).(*ast.CallExpr); !call { // a pure call returns a pure iterator
			return &leak{s.Pos(), "ranges over " + types.ExprString(s.X) + ", a function value"}
		}
	}
	return nil
}

func (r *region) branch(s *ast.BranchStmt, breaks bool) *leak {
	switch {
	case r.loop == nil || s.Tok == token.FALLTHROUGH:
		return nil
	case s.Tok == token.GOTO || s.Label != nil && !r.inner(r.c.pass.TypesInfo.ObjectOf(s.Label)):
		r.exits = append(r.exits, exit{s.Pos(), r.block, s.Tok.String() + " " + s.Label.Name})
	case s.Tok == token.BREAK && s.Label == nil && !breaks:
		r.exits = append(r.exits, exit{s.Pos(), r.block, "break"})
	}
	return nil
}

func (r *region) returns(s *ast.ReturnStmt) *leak {
	var text []string
	for _, e := range s.Results {
		if l := r.expr(e); l != nil {
			return l
		}
		if r.loop != nil && r.mentionsInner(e) {
			return &leak{s.Pos(), "returns what the iteration that came first found"}
		}
		text = append(text, types.ExprString(e))
	}
	r.exits = append(r.exits, exit{s.Pos(), r.block, "return " + strings.Join(text, ",")})
	return nil
}

func (r *region) mentionsInner(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			v, isVar := r.c.pass.TypesInfo.ObjectOf(id).(*types.Var)
			found = found || isVar && !v.IsField() && r.inner(v)
		}
		return !found
	})
	return found
}
