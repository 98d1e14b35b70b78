package cli

import (
	"fmt"
	"strings"
)

// diffContext is how many equal lines stand around a difference.
const diffContext = 2

func lines(data []byte) []string {
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// diff returns the lines that lead from a to b, as diff -u prints them, by their longest common
// subsequence. It takes time and memory in len(a)·len(b), after equal ends are cut off: files that
// are formatted differ in a few places.
func diff(a, b []string) []string {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	from := max(0, head-diffContext)
	out := []string{fmt.Sprintf("@@ line %d @@", from+1)}
	for _, l := range a[from:head] {
		out = append(out, " "+l)
	}
	out = append(out, middle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for i := len(a) - tail; i < min(len(a), len(a)-tail+diffContext); i++ {
		out = append(out, " "+a[i])
	}
	return out
}

func middle(a, b []string) (out []string) {
	common := make([][]int32, len(a)+1) // common[i][j]: length for a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, " "+a[i])
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}
