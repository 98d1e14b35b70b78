// Package spelling finds what somebody probably meant by a word that is not known, for the errors
// of the scenario language and of the simulated API server.
package spelling

import "strings"

// Closest returns the allowed word with the smallest edit distance to word, the first of several;
// "" if none is close: at most one edit for each three letters, and at least one. Case is free.
func Closest(word string, allowed []string) string {
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, a := range allowed {
		if d := Distance(strings.ToLower(word), strings.ToLower(a)); d < bestDistance {
			best, bestDistance = a, d
		}
	}
	return best
}

// Hint returns `; did you mean "x"?` for the closest allowed word, or "".
func Hint(word string, allowed []string) string {
	if c := Closest(word, allowed); c != "" {
		return `; did you mean "` + c + `"?`
	}
	return ""
}

// Distance is the number of letters to insert, delete, replace, or swap with the next one, that
// turn a into b (optimal string alignment). Words longer than 64 bytes are cut.
func Distance(a, b string) int {
	const limit = 64
	a, b = a[:min(len(a), limit)], b[:min(len(b), limit)]
	var before, prev, cur [limit + 1]int
	for j := range len(b) + 1 {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev = prev, cur
	}
	return prev[len(b)]
}
