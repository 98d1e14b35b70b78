package determinism

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mapRange looks for a way in which a loop over a map can show the order of the map. It returns nil
// if the body, beside its own variables, does only this:
//
//   - assigns to elements of maps under the loop's own key, or one and the same value under any key,
//   - deletes from maps,
//   - accumulates what commutes: += of integers, |=, &=, && and ||, min, max, counting,
//   - assigns one and the same value to a variable,
//   - appends to a slice that the same function sorts afterwards,
//   - leaves the loop in one way only, with a value that no iteration has a part in,
//
// reads nothing that it changes, and calls only functions that change nothing. Two names for one
// thing are not seen through.
func (c *checker) mapRange(s *ast.RangeStmt, after *ast.BlockStmt) *leak {
	if isBlank(s.Key) && isBlank(s.Value) {
		return nil // every iteration is the same
	}
	r := c.region(s)
	r.loop, r.after = s, after
	if l := r.rangeTargets(s); l != nil {
		return l
	}
	r.findChanged(s.Body)
	if l := r.statements(s.Body, s.Body.List, false); l != nil {
		return l
	}
	return r.leaving()
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return e == nil || ok && id.Name == "_"
}

// findChanged notes the paths that the loop changes outside itself.
func (r *region) findChanged(body *ast.BlockStmt) {
	add := func(e ast.Expr) {
		if p, _ := r.outside(e); p != "" && !slices.Contains(r.changed, p) {
			r.changed = append(r.changed, p)
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				add(l)
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.CallExpr:
			if isBuiltin(r.c.pass.TypesInfo, n, "delete", "clear") {
				if p := types.ExprString(n.Args[0]); !r.fresh[r.object(n.Args[0])] {
					r.changed = append(r.changed, p)
				}
			}
		}
		return true
	})
}

// leaving checks that ending the loop early shows nothing.
func (r *region) leaving() *leak {
	if len(r.exits) == 0 {
		return nil
	}
	first := r.exits[0]
	for _, e := range r.exits[1:] {
		if e.text != first.text {
			return &leak{e.pos, fmt.Sprintf("leaves the loop with %q, another line with %q", e.text, first.text)}
		}
	}
	for _, w := range r.ways {
		// Right before the only way out, the value is set once.
		if len(r.exits) > 1 || w.block != first.block || !w.constant {
			return &leak{w.pos, "changes something in a loop that ends early"}
		}
	}
	return nil
}

// record notes a change of a path outside the region.
func (r *region) record(pos token.Pos, path, class string, constant bool) *leak {
	if r.loop == nil {
		return &leak{pos, "changes " + path}
	}
	if old, ok := r.how[path]; ok && old != class {
		return &leak{pos, fmt.Sprintf("changes %s in a second way", path)}
	}
	r.how[path] = class
	r.ways = append(r.ways, change{pos, r.block, constant})
	return nil
}

// target looks at a change of e of some class; rhs is what is assigned, nil for ++.
func (r *region) target(e ast.Expr, class string, rhs ast.Expr) *leak {
	if l := r.subscripts(e); l != nil {
		return l
	}
	path, keyed := r.outside(e)
	if path == "" {
		return nil
	}
	if class != "set" {
		return r.record(e.Pos(), path, class, false)
	}
	switch {
	case r.loop == nil:
		return &leak{e.Pos(), "changes " + path}
	case rhs == nil:
		return &leak{e.Pos(), fmt.Sprintf("assigns to %s what the last iteration found", path)}
	case keyed != nil && r.isOwnKey(keyed):
		return r.record(e.Pos(), path, "own key", false)
	case !r.mentionsInner(rhs):
		return r.record(e.Pos(), path, "value "+types.ExprString(rhs), true)
	case keyed != nil:
		return &leak{e.Pos(), fmt.Sprintf("assigns to %s under a key that another iteration may have too", path)}
	}
	return &leak{e.Pos(), fmt.Sprintf("assigns to %s what depends on the iteration", path)}
}

// subscripts looks at the indexes on the way to an assigned element.
func (r *region) subscripts(e ast.Expr) *leak {
	switch e := ast.Unparen(e).(type) {
	case *ast.IndexExpr:
		return firstLeak(func() *leak { return r.expr(e.Index) }, func() *leak { return r.subscripts(e.X) })
	case *ast.SelectorExpr:
		return r.subscripts(e.X)
	case *ast.StarExpr:
		return r.subscripts(e.X)
	case *ast.CallExpr:
		return r.expr(e)
	}
	return nil
}

// isOwnKey reports whether an index differs whenever the loop's key does: it is the key, or a value
// with the key in it.
func (r *region) isOwnKey(e ast.Expr) bool {
	if r.loop == nil || r.loop.Key == nil {
		return false
	}
	key := r.object(r.loop.Key)
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return key != nil && r.object(e) == key
	case *ast.CompositeLit:
		return slices.ContainsFunc(e.Elts, func(x ast.Expr) bool {
			if kv, ok := x.(*ast.KeyValueExpr); ok {
				x = kv.Value
			}
			return r.isOwnKey(x)
		})
	}
	return false
}

// commuting are the assignments whose order does not matter, by what they do to the value.
var commuting = map[token.Token]string{
	token.ADD_ASSIGN: "add", token.SUB_ASSIGN: "add", token.OR_ASSIGN: "or", token.AND_ASSIGN: "and",
	token.AND_NOT_ASSIGN: "and", token.XOR_ASSIGN: "xor", token.MUL_ASSIGN: "multiply",
}

func (r *region) assign(s *ast.AssignStmt) *leak {
	if s.Tok != token.ASSIGN && s.Tok != token.DEFINE {
		class, ok := commuting[s.Tok]
		if p, _ := r.outside(s.Lhs[0]); p == "" {
			return firstLeak(func() *leak { return r.subscripts(s.Lhs[0]) }, func() *leak { return r.expr(s.Rhs[0]) })
		}
		if b, basic := r.c.pass.TypesInfo.TypeOf(s.Lhs[0]).Underlying().(*types.Basic); !ok || !basic || b.Info()&types.IsInteger == 0 {
			return &leak{s.Pos(), fmt.Sprintf("%s of %s depends on the order", s.Tok, types.ExprString(s.Lhs[0]))}
		}
		return firstLeak(func() *leak { return r.expr(s.Rhs[0]) }, func() *leak { return r.target(s.Lhs[0], class, s.Rhs[0]) })
	}
	if len(s.Lhs) != len(s.Rhs) {
		if l := r.expr(s.Rhs[0]); l != nil {
			return l
		}
		for _, e := range s.Lhs {
			if l := r.target(e, "set", nil); l != nil {
				return l
			}
		}
		return nil
	}
	for i, e := range s.Lhs {
		if l := r.assignOne(e, s.Rhs[i]); l != nil {
			return l
		}
	}
	return nil
}

// assignOne looks at lhs = rhs, where rhs may be a step of an accumulation.
func (r *region) assignOne(lhs, rhs ast.Expr) *leak {
	path, keyed := r.outside(lhs)
	if path != "" && keyed == nil && r.loop != nil {
		rest, class := r.accumulation(path, rhs)
		for _, e := range rest {
			if l := r.expr(e); l != nil {
				return l
			}
		}
		if class == "append" && !r.sortedLater(path) {
			return &leak{lhs.Pos(), fmt.Sprintf("appends to %s, which this function does not sort afterwards", path)}
		}
		if class != "" {
			return r.target(lhs, class, rhs)
		}
	}
	return firstLeak(func() *leak { return r.expr(rhs) }, func() *leak { return r.target(lhs, "set", rhs) })
}

// accumulation recognises the right sides of x = append(x, …), x = max(x, …), x = x && …; rest are
// the operands beside x.
func (r *region) accumulation(path string, rhs ast.Expr) (rest []ast.Expr, class string) {
	same := func(e ast.Expr) bool { return types.ExprString(ast.Unparen(e)) == path }
	switch e := ast.Unparen(rhs).(type) {
	case *ast.CallExpr:
		for _, b := range []string{"append", "max", "min"} {
			if !isBuiltin(r.c.pass.TypesInfo, e, b) {
				continue
			}
			i := slices.IndexFunc(e.Args, same)
			if i < 0 || b == "append" && i > 0 {
				return nil, ""
			}
			return slices.Delete(slices.Clone(e.Args), i, i+1), b
		}
	case *ast.BinaryExpr:
		if e.Op != token.LAND && e.Op != token.LOR {
			return nil, ""
		}
		if same(e.X) {
			return []ast.Expr{e.Y}, e.Op.String()
		}
		if same(e.Y) {
			return []ast.Expr{e.X}, e.Op.String()
		}
	}
	return nil, ""
}

// sortedLater reports whether the function sorts a slice after the loop.
func (r *region) sortedLater(path string) bool {
	found := false
	ast.Inspect(r.after, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && call.Pos() > r.loop.End() && len(call.Args) > 0 {
			found = found || sameSlice(call.Args[0], path) && r.c.sorts(callee(r.c.pass.TypesInfo, call))
		}
		return !found
	})
	return found
}

func sameSlice(e ast.Expr, path string) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.SliceExpr:
		return sameSlice(e.X, path)
	case *ast.CallExpr: // a conversion, as in sort.Sort(byName(x))
		return len(e.Args) == 1 && sameSlice(e.Args[0], path)
	default:
		return types.ExprString(e) == path
	}
}

// sorts reports whether a function sorts its first argument.
func (c *checker) sorts(f *types.Func) bool {
	if f == nil || f.Pkg() == nil || f.Signature().Recv() != nil {
		return false
	}
	switch f.Pkg().Path() {
	case "slices":
		return strings.HasPrefix(f.Name(), "Sort") && !strings.HasPrefix(f.Name(), "Sorted")
	case "sort":
		return !strings.HasPrefix(f.Name(), "Search") && !strings.Contains(f.Name(), "IsSorted") && !strings.HasSuffix(f.Name(), "AreSorted")
	case "towtank/datapath":
		if f.Name() == "SortObjects" { // it sorts a list of keys beside it
			return true
		}
	}
	decl := c.decls[f]
	if decl == nil || len(decl.Type.Params.List) == 0 || len(decl.Type.Params.List[0].Names) == 0 {
		return false
	}
	first := decl.Type.Params.List[0].Names[0].Name
	return slices.ContainsFunc(decl.Body.List, func(s ast.Stmt) bool {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 || !sameSlice(call.Args[0], first) {
			return false
		}
		g := callee(c.pass.TypesInfo, call)
		return g != f && c.sorts(g)
	})
}
