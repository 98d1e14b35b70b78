package maprange

import (
	"fmt"
	"slices"
)

func unsorted(m map[string]int) (out []string) {
	for k := range m { // want `appends to out, which this function does not sort afterwards`
		out = append(out, k)
	}
	return out
}

func sortedBefore(m map[string]int) (out []string) {
	slices.Sort(out)
	for k := range m { // want `appends to out`
		out = append(out, k)
	}
	return out
}

func first(m map[string]int) string {
	for k := range m { // want `returns what the iteration that came first found`
		return k
	}
	return ""
}

func last(m map[string]int) (out string) {
	for k := range m { // want `assigns to out what depends on the iteration`
		out = k
	}
	return out
}

func concatenated(m map[string]int) (s string, f float64) {
	for k := range m { // want `\+= of s depends on the order`
		s += k
	}
	for _, v := range m { // want `\+= of f depends on the order`
		f += float64(v)
	}
	return s, f
}

func inverted(m map[string]int) map[int]string {
	out := map[int]string{}
	for k, v := range m { // want `assigns to out under a key that another iteration may have too`
		out[v] = k
	}
	return out
}

func grouped(m map[string]int) map[int][]string {
	out := map[int][]string{}
	for k, v := range m { // want `reads out, which the loop changes`
		out[v] = append(out[v], k)
	}
	return out
}

func numbered(m map[string]int) map[string]int {
	n := 0
	out := map[string]int{}
	for k := range m { // want `reads n, which the loop changes`
		out[k] = n
		n++
	}
	return out
}

func told(m map[string]int, f func(string)) {
	for k := range m { // want `calls f, a function value`
		f(k)
	}
	for k := range m { // want `calls fmt.Println, which may change something`
		fmt.Println(k)
	}
}

var counter int

func next() int { counter++; return counter }

func pureOnTheFace(m map[string]int) map[string]int {
	out := map[string]int{}
	for k := range m { // want `calls next, which may change something`
		out[k] = next()
	}
	return out
}

func twoWays(m map[string]int) bool {
	for _, v := range m { // want `leaves the loop with "return false", another line with "return true"`
		if v > 3 {
			return true
		}
		if v < 0 {
			return false
		}
	}
	return false
}

func early(m map[string]int) (n int) {
	for _, v := range m { // want `reads n, which the loop changes`
		n += v
		if n == 0 || v > 3 {
			break
		}
	}
	for _, v := range m { // want `changes something in a loop that ends early`
		n += v
		if v > 3 {
			break
		}
	}
	return n
}

func mixed(m map[string]int) (n int) {
	for _, v := range m { // want `changes n in a second way`
		n += v
		n *= 2
	}
	return n
}

func (s *state) rename() {
	for _, t := range s.things { // want `assigns to s.most what depends on the iteration`
		s.most = t.n
	}
	for k, t := range s.things { // want `assigns to t.name what depends on the iteration`
		t.name = k
	}
}

func assigned(m map[string]int) (k string) {
	for k = range m { // want `leaves its last value in k`
	}
	return k
}

func genericReported[M ~map[K]V, K comparable, V any](m M) (out []K) {
	for k := range m { // want `appends to out`
		out = append(out, k)
	}
	return out
}

func deferred(m map[string]int) {
	for range m {
	}
	for k := range m { // want `does what cannot be followed`
		defer fmt.Print(k)
	}
}

func kept(m map[string]int, f func(string)) {
	//determinism:ignore f adds to a set
	for k := range m {
		f(k)
	}
}
