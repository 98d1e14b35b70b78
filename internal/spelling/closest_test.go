package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"", "abc", 3},
		{"probe", "probe", 0},
		{"prob", "probe", 1},
		{"porbe", "probe", 1},
		{"settel", "settle", 1},
		{"kitten", "sitting", 3},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestClosest(t *testing.T) {
	words := []string{"probe", "settle", "expect-owner", "ok"}
	for word, want := range map[string]string{"prob": "probe", "Settel": "settle", "expect-onwer": "expect-owner", "o": "ok", "xyzzy": ""} {
		if got := Closest(word, words); got != want {
			t.Errorf("Closest(%q) = %q, want %q", word, got, want)
		}
	}
}
