package host

import (
	"slices"
	"strings"
)

// Arrange returns the rules of a chain with ours changed: those whose key is in del are gone, those of
// add are there. A chain of ours has our rules in their order; a built-in chain has ours first. T is a
// rule as the caller holds it; spec is nil for one that cannot be parsed, which is somebody else's.
func Arrange[T any](table, chain string, old []T, spec func(T) *RuleSpec, del map[string]bool, add []IPTables, bind func(IPTables) T) []T {
	type mine struct {
		o IPTables
		r T
	}
	var ours []mine
	var foreign []T
	seen := map[string]bool{}
	for _, r := range old {
		var o IPTables
		ok := false
		if s := spec(r); s != nil {
			o, ok = FromSpec(table, chain, s)
		}
		if !ok {
			foreign = append(foreign, r)
			continue
		}
		if k := o.Key().Name; !del[k] && !seen[k] {
			seen[k] = true
			ours = append(ours, mine{o, r})
		}
	}
	for _, o := range add {
		if k := o.Key().Name; !seen[k] {
			seen[k] = true
			ours = append(ours, mine{o, bind(o)})
		}
	}
	slices.SortStableFunc(ours, func(a, b mine) int { return a.o.Compare(b.o) })
	out := make([]T, 0, len(ours)+len(foreign))
	for _, m := range ours {
		out = append(out, m.r)
	}
	return append(out, foreign...)
}

// DumpChain returns our rules among those of a chain, in their order; a nil one cannot be parsed. A
// rule that is not in its place says behind what it is.
func DumpChain(table, chain string, rules []*RuleSpec) []IPTables {
	var out []IPTables
	behind := ""
	var last *IPTables
	seen := map[string]bool{}
	for _, spec := range rules {
		if spec == nil {
			if behind == "" {
				behind = "a-rule"
			}
			continue
		}
		o, ok := FromSpec(table, chain, spec)
		if !ok {
			if behind == "" {
				behind = spec.word()
			}
			continue
		}
		o.Behind = behind
		if last != nil && last.Compare(o) >= 0 && o.Priority != Unmarked && behind == "" {
			o.Behind = "itself"
			if last.Rule != o.Rule {
				o.Behind = "a-later-rule"
			}
		}
		if o.Priority == Unmarked {
			o.Behind = ""
			if seen[o.Rule] {
				continue
			}
			seen[o.Rule] = true
		} else {
			kept := o
			last = &kept
		}
		out = append(out, o)
	}
	return out
}

// word is how a rule is called in one word: where it jumps, or what it does.
func (r *RuleSpec) word() string {
	if to := r.JumpsTo(); to != "" {
		return to
	}
	w := strings.Fields(r.String())
	if i := slices.Index(w, "-j"); i >= 0 && i+1 < len(w) {
		return w[i+1]
	}
	return "a-rule"
}
