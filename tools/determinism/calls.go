package determinism

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// banned are functions whose result or moment differs from run to run, by package. A name that
// starts with a capital stands for itself; "*" for all package-level functions but those after "-".
var banned = map[string]struct {
	names []string
	why   string
}{
	"time": {
		[]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"reads the wall clock; take the time as a parameter",
	},
	"context": {
		[]string{"WithTimeout", "WithDeadline", "WithTimeoutCause", "WithDeadlineCause"},
		"starts a timer of the wall clock; set a deadline on virtual time",
	},
	"math/rand":    {[]string{"*", "-New", "-NewSource", "-NewZipf"}, "uses the global generator; take a *rand.Rand"},
	"math/rand/v2": {[]string{"*", "-New", "-NewPCG", "-NewChaCha8", "-NewZipf"}, "uses the global generator; take a *rand.Rand"},
	"crypto/rand":  {[]string{"*"}, "is random in every run; take a *rand.Rand"},
	"hash/maphash": {[]string{"*"}, "is seeded anew in every process; use hash/fnv"},
	"os":           {[]string{"Getpid", "Getppid", "Hostname"}, "differs from process to process"},
	"github.com/google/uuid": {
		[]string{"New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7", "Must"},
		"is random in every run; make the identifier from the seed",
	},
	"k8s.io/apimachinery/pkg/util/uuid": {[]string{"*"}, "is random in every run; make the identifier from the seed"},
	"k8s.io/apimachinery/pkg/util/rand": {[]string{"*"}, "uses a global generator; take a *rand.Rand"},
	"k8s.io/apimachinery/pkg/util/wait": {[]string{"*"}, "waits on the wall clock"},
}

// use reports a use of something banned, whether it is called or passed on.
func (c *checker) use(id *ast.Ident, stack []ast.Node) {
	switch obj := c.pass.TypesInfo.Uses[id].(type) {
	case *types.Var:
		if obj.Pkg() != nil && obj.Pkg().Path() == "crypto/rand" {
			c.report(id.Pos(), "crypto/rand.%s is random in every run; take a *rand.Rand", obj.Name())
		}
	case *types.Func:
		if obj.Pkg() == nil {
			return
		}
		path, name := obj.Pkg().Path(), obj.Name()
		if sig := obj.Signature(); sig.Recv() != nil {
			c.method(id, obj, path)
			return
		}
		if b, ok := banned[path]; ok && (slices.Contains(b.names, name) || slices.Contains(b.names, "*")) && !slices.Contains(b.names, "-"+name) {
			c.report(id.Pos(), "%s.%s %s", path, name, b.why)
		}
		if path == "maps" && (name == "Keys" || name == "Values" || name == "All") {
			c.iterator(id, name, stack)
		}
	}
}

// method reports the methods that hand out elements in the order of a map.
func (c *checker) method(id *ast.Ident, obj *types.Func, path string) {
	name := obj.Name()
	switch {
	case path == "k8s.io/apimachinery/pkg/util/sets" && (name == "UnsortedList" || name == "PopAny"):
		c.report(id.Pos(), "%s takes elements in the order of a map; use sets.List", name)
	case path == "reflect" && (name == "MapKeys" || name == "MapRange"):
		c.report(id.Pos(), "reflect's %s walks in the order of a map; sort the keys first", name)
	case path == "sync" && name == "Range":
		c.report(id.Pos(), "sync.Map's Range walks in the order of a map; sort the keys first")
	}
}

// sorters are the functions of package slices that put what an iterator yields in order.
var sorters = []string{"Sorted", "SortedFunc", "SortedStableFunc"}

// iterator reports maps.Keys, Values and All, unless their result is sorted, or put into a map, at once.
func (c *checker) iterator(id *ast.Ident, name string, stack []ast.Node) {
	// The identifier is the Sel of a selector, the selector the Fun of a call, the call an argument.
	n := ast.Node(id)
	var calls []*ast.CallExpr
	for i := len(stack) - 1; i >= 0 && len(calls) < 2; i-- {
		switch p := stack[i].(type) {
		case *ast.SelectorExpr, *ast.ParenExpr, *ast.IndexExpr, *ast.IndexListExpr:
		case *ast.CallExpr:
			if len(calls) == 0 && ast.Unparen(p.Fun) != n || len(calls) == 1 && !slices.ContainsFunc(p.Args, func(a ast.Expr) bool { return a == n }) {
				i = 0
				continue
			}
			calls = append(calls, p)
		default:
			i = 0
			continue
		}
		n = stack[i]
	}
	if len(calls) == 2 {
		if f := callee(c.pass.TypesInfo, calls[1]); f != nil && f.Pkg() != nil {
			p := f.Pkg().Path()
			if p == "slices" && slices.Contains(sorters, f.Name()) || p == "maps" && (f.Name() == "Collect" || f.Name() == "Insert") && name == "All" {
				return
			}
		}
	}
	c.report(id.Pos(), "maps.%s yields in the order of the map; pass it directly to slices.Sorted, SortedFunc or SortedStableFunc", name)
}

// callee returns the function or method that a call names, nil for a function value or conversion.
func callee(info *types.Info, call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = ast.Unparen(f.X)
	case *ast.IndexListExpr:
		fun = ast.Unparen(f.X)
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return nil
	}
	fn, _ := info.Uses[id].(*types.Func)
	if fn != nil {
		fn = fn.Origin()
	}
	return fn
}

func isBuiltin(info *types.Info, call *ast.CallExpr, names ...string) bool {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok {
		return false
	}
	b, ok := info.Uses[id].(*types.Builtin)
	return ok && slices.Contains(names, b.Name())
}

// purePackages are packages whose functions, and whose methods on values, change nothing.
var purePackages = []string{
	"strings", "strconv", "unicode", "unicode/utf8", "math", "math/bits", "cmp", "errors", "net/netip", "path",
	"k8s.io/apimachinery/pkg/types", "k8s.io/utils/ptr",
}

// pureFunctions are those of other packages. A trailing * stands for any ending.
var pureFunctions = map[string][]string{
	"fmt":    {"Sprint*", "Errorf"},
	"net":    {"Parse*", "JoinHostPort", "SplitHostPort", "CIDRMask"},
	"bytes":  {"Equal", "Compare", "Contains*", "HasPrefix", "HasSuffix", "Index*", "Trim*", "Clone"},
	"slices": {"Contains*", "Index*", "Equal*", "Compare*", "Clone", "Max*", "Min*", "BinarySearch*", "Concat", "Sorted*", "Collect", "IsSorted*", "Repeat"},
	"maps":   {"Clone", "Equal*", "Keys", "Values"},
	"time":   {"Duration", "Date", "Unix*", "Parse*"},
}

// pureMethods are those of types of other packages.
var pureMethods = map[string][]string{
	"time":                                 {"*"}, // Time and Duration are values; timers are reported where they are made
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Get*", "DeepCopy*", "Before", "Equal", "IsZero"},
	"k8s.io/apimachinery/pkg/labels":       {"Matches", "Empty", "String", "Has", "Get"},
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return p == name || open && strings.HasPrefix(name, prefix)
	})
}

// knownPure reports whether a function of another package changes nothing but what it is called on.
func knownPure(f *types.Func) bool {
	if f.Pkg() == nil {
		return f.Name() == "Error" // the method of the predeclared interface
	}
	path := f.Pkg().Path()
	if recv := f.Signature().Recv(); recv != nil {
		if _, pointer := types.Unalias(recv.Type()).(*types.Pointer); !pointer && slices.Contains(purePackages, path) {
			return true
		}
		return f.Name() == "String" || matches(pureMethods[path], f.Name())
	}
	return slices.Contains(purePackages, path) || matches(pureFunctions[path], f.Name())
}
