package lang

import "testing"

// The largest loop that is allowed, with the work that a line of it can make.
func BenchmarkParseLargest(b *testing.B) {
	data := []byte("nodes n1\nexternal ext\nfor i in 1..1000 {\nfor j in 1..99 {\n[sim] probe default/p$i -> ext count=$j expect ok source=node/n1\n}\n}\n")
	for b.Loop() {
		if _, err := Parse("f", data); err != nil {
			b.Fatal(err)
		}
	}
}
