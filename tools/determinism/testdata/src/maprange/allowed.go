package maprange

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

type thing struct {
	name  string
	n     int
	late  bool
	parts []string
}

type state struct {
	things map[string]*thing
	byNum  map[int]*thing
	most   int
}

func (t *thing) title() string { return strings.ToUpper(t.name) }

func sortThings(l []*thing) {
	slices.SortFunc(l, func(a, b *thing) int { return strings.Compare(a.name, b.name) })
}

func keys(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func sortedBelow(s *state) []*thing {
	out := make([]*thing, 0, len(s.things))
	for _, t := range s.things {
		if t == nil || slices.ContainsFunc(t.parts, func(p string) bool { return p == t.title() }) {
			continue
		}
		out = append(out, t)
	}
	sortThings(out)
	return out
}

func sums(s *state, m map[string]int) (sum, bits, low int, all bool) {
	all, low = true, 1000
	for k, v := range m {
		sum += v
		bits |= 1 << len(k)
		s.most = max(s.most, v)
		if v < low {
			low = v
		}
		all = all && v > 0
	}
	return sum, bits, low, all
}

func count(m map[string]bool) (n int) {
	for range m {
		n++
	}
	for _, v := range m {
		if v {
			n++
		}
	}
	return n
}

func copies(m map[string]int) (map[string]string, map[[2]string]int, map[int]bool) {
	out, pairs, seen := map[string]string{}, map[[2]string]int{}, map[int]bool{}
	for k, v := range m {
		var b strings.Builder
		for i := range v {
			b.WriteString(fmt.Sprint(i))
		}
		out[k] = b.String()
		pairs[[2]string{k, "x"}] = v
		seen[v] = true
	}
	return out, pairs, seen
}

func deletes(s *state, m map[string]int) {
	for k, v := range m {
		delete(s.things, k)
		delete(s.byNum, v)
		if v == 0 {
			delete(m, k)
		}
	}
}

func exists(m map[string]int, want int) bool {
	for _, v := range m {
		if v == want {
			return true
		}
	}
	return false
}

func found(m map[string]int, want int) bool {
	ok := false
	for _, v := range m {
		for i := range v {
			if i == 7 {
				break
			}
		}
		if v == want {
			ok = true
			break
		}
	}
	return ok
}

func same(s *state) {
	for _, t := range s.things {
		t.late = false
	}
}

func own(s *state) int {
	n := 0
	for _, t := range s.things {
		local := &thing{}
		local.n = t.n
		parts := []string{"a"}
		parts[0] = t.name
		parts = append(parts, t.parts...)
		slices.Sort(parts)
		switch v := any(t).(type) {
		case fmt.Stringer:
			_ = v
		default:
			n += local.n + len(parts)
		}
	}
	return n
}

func generic[M ~map[K]V, K ~string, V any](m M) (out []K) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
