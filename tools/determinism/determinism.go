// Package determinism is an analyzer for code that must do the same in every run: given the same
// events, the agent and the simulator have to make the same decisions in the same order, or a seed
// would not replay a run.
//
// It reports what makes a run differ from the next: goroutines, channels, select, the wall clock and
// its timers, randomness that nobody seeded, and the order in which Go walks a map, unless the body
// of the loop can be seen not to show that order (see mapRange). What it reports is either mended,
// usually by sorting, or kept with a reason, on the line or the one above:
//
//	//determinism:ignore each key is handled by itself
//
// Tests are exempt: they start what they like around the code they test.
//
//	determinism.go  scope, findings, the comments that keep one    calls.go    clocks, randomness, iterators
//	maprange.go     loops over maps                                effects.go  what a statement changes
package determinism

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// DefaultScope are the packages that must be deterministic; "/..." adds those below, "-" takes away
// again. What is not in it is the edge: the production shell, which turns goroutines into events.
const DefaultScope = "towtank/agent/...,-towtank/agent/shell/...,towtank/sim/...,towtank/scenarios/reference/...,towtank/scenarios/check/...," +
	"towtank/datapath,towtank/datapath/openflow,towtank/datapath/ovsdb,towtank/datapath/host"

// Analyzer reports what can make two runs with one seed differ.
var Analyzer = &analysis.Analyzer{
	Name: "determinism",
	Doc:  "report goroutines, clocks, unseeded randomness and map order in code that must be deterministic",
	Run:  run,
}

var scope string

func init() {
	Analyzer.Flags.StringVar(&scope, "scope", DefaultScope, "comma list of packages to check; PATH/... means PATH and all below, -PATH not PATH")
}

func inScope(path string) bool {
	in := false
	for s := range strings.SplitSeq(scope, ",") {
		s, without := strings.CutPrefix(s, "-")
		if base, below := strings.CutSuffix(s, "/..."); path == base || below && strings.HasPrefix(path, base+"/") {
			in = !without
		}
	}
	return in
}

func run(pass *analysis.Pass) (any, error) {
	if !inScope(pass.Pkg.Path()) {
		return nil, nil
	}
	c := &checker{pass: pass, decls: declarations(pass), pure: make(map[*types.Func]bool)}
	for _, f := range pass.Files {
		if strings.HasSuffix(pass.Fset.Position(f.Package).Filename, "_test.go") {
			continue
		}
		c.file(f)
	}
	return nil, nil
}

// checker is the analysis of one package.
type checker struct {
	pass  *analysis.Pass
	decls map[*types.Func]*ast.FuncDecl
	// pure says which functions of the package change nothing that their caller can see; a function
	// that is being looked at counts as pure, so that recursion ends.
	pure    map[*types.Func]bool
	ignores map[int]*ignore // of the file at hand, by the line that the comment speaks of
}

// ignore is a comment that keeps the findings of a line.
type ignore struct {
	pos  token.Pos
	used bool
}

const ignorePrefix = "//determinism:ignore"

func declarations(pass *analysis.Pass) map[*types.Func]*ast.FuncDecl {
	m := make(map[*types.Func]*ast.FuncDecl)
	for _, f := range pass.Files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				if obj, ok := pass.TypesInfo.Defs[fn.Name].(*types.Func); ok {
					m[obj] = fn
				}
			}
		}
	}
	return m
}

func (c *checker) file(f *ast.File) {
	c.readIgnores(f)
	var stack []ast.Node // from the file down to the parent of the node at hand
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		c.node(n, stack)
		stack = append(stack, n)
		return true
	})
	for _, i := range c.ignores {
		if !i.used {
			c.pass.Reportf(i.pos, "nothing to ignore here: remove the comment")
		}
	}
}

// readIgnores finds the comments of a file. One at the end of a line speaks of that line, one on a
// line of its own of the next.
func (c *checker) readIgnores(f *ast.File) {
	c.ignores = make(map[int]*ignore)
	code := make(map[int]bool) // lines on which something other than a comment starts or ends
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.Comment, *ast.CommentGroup:
			return false
		}
		code[c.line(n.Pos())], code[c.line(n.End())] = true, true
		return true
	})
	for _, g := range f.Comments {
		for _, cm := range g.List {
			reason, ok := strings.CutPrefix(cm.Text, ignorePrefix)
			if !ok {
				continue
			}
			// A later comment of the same line is not the reason.
			if reason, _, _ = strings.Cut(reason, "//"); strings.TrimSpace(reason) == "" {
				c.pass.Reportf(cm.Pos(), "%s needs a reason: say why the order or the source does not matter", ignorePrefix)
			}
			line := c.line(cm.Pos())
			if !code[line] {
				line = c.line(g.End()) + 1
			}
			c.ignores[line] = &ignore{pos: cm.Pos()}
		}
	}
}

func (c *checker) line(p token.Pos) int { return c.pass.Fset.Position(p).Line }

// report reports a finding, unless a comment keeps it.
func (c *checker) report(pos token.Pos, format string, args ...any) {
	if i := c.ignores[c.line(pos)]; i != nil {
		i.used = true
		return
	}
	c.pass.Reportf(pos, format, args...)
}

// node reports what is wrong with one node by itself.
func (c *checker) node(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n.Pos(), "go statement: the scheduler decides what happens first; post an event instead")
	case *ast.SelectStmt:
		c.report(n.Pos(), "select: picks among ready channels at random")
	case *ast.SendStmt:
		if !inSelect(stack) {
			c.report(n.Pos(), "channel send: waits for another goroutine")
		}
	case *ast.UnaryExpr:
		if n.Op == token.ARROW && !inSelect(stack) {
			c.report(n.Pos(), "channel receive: waits for another goroutine")
		}
	case *ast.ChanType:
		if len(stack) > 0 {
			if call, ok := stack[len(stack)-1].(*ast.CallExpr); ok && isBuiltin(c.pass.TypesInfo, call, "make") {
				c.report(n.Pos(), "channel made: only goroutines need one")
			}
		}
	case *ast.CallExpr:
		if isBuiltin(c.pass.TypesInfo, n, "close") {
			c.report(n.Pos(), "channel closed: only goroutines need one")
		}
	case *ast.Ident:
		c.use(n, stack)
	case *ast.RangeStmt:
		switch t := c.pass.TypesInfo.TypeOf(n.X); {
		case coreIs[*types.Chan](t):
			c.report(n.Pos(), "range over a channel: waits for another goroutine")
		case coreIs[*types.Map](t):
			if l := c.mapRange(n, enclosingFunc(stack)); l != nil {
				c.report(n.Pos(), "range over a map may show its order: line %d %s; sort the keys first", c.line(l.pos), l.why)
			}
		}
	}
}

// inSelect reports whether a channel operation is the case of a select, which is reported itself.
func inSelect(stack []ast.Node) bool {
	for i := len(stack) - 1; i >= 0; i-- {
		switch n := stack[i].(type) {
		case *ast.CommClause:
			return n.Comm != nil && i+1 < len(stack) && stack[i+1] == ast.Node(n.Comm) || i+1 == len(stack)
		case *ast.BlockStmt, *ast.FuncLit:
			return false
		}
	}
	return false
}

// enclosingFunc returns the body of the innermost function around a node.
func enclosingFunc(stack []ast.Node) *ast.BlockStmt {
	for i := len(stack) - 1; i >= 0; i-- {
		switch n := stack[i].(type) {
		case *ast.FuncLit:
			return n.Body
		case *ast.FuncDecl:
			return n.Body
		}
	}
	return nil
}

// coreIs reports whether the type, or every type that a type parameter can be, is a T underneath.
func coreIs[T types.Type](t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := types.Unalias(t).(*types.TypeParam); ok {
		iface, ok := p.Constraint().Underlying().(*types.Interface)
		if !ok || iface.NumEmbeddeds() == 0 {
			return false
		}
		for i := range iface.NumEmbeddeds() {
			u, ok := iface.EmbeddedType(i).(*types.Union)
			if !ok {
				if !coreIs[T](iface.EmbeddedType(i)) {
					return false
				}
				continue
			}
			for j := range u.Len() {
				if !coreIs[T](u.Term(j).Type()) {
					return false
				}
			}
		}
		return true
	}
	_, ok := t.Underlying().(T)
	return ok
}
