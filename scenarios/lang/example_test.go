package lang

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The scenarios in testdata are canonical: formatting does not change them.
func TestExamplesAreCanonical(t *testing.T) {
	files, err := filepath.Glob("testdata/*.scenario")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(name, data)
		if err != nil {
			t.Error(err)
			continue
		}
		if d := cmp.Diff(string(data), string(f.Format())); d != "" {
			t.Errorf("%s (-written +formatted)\n%s", name, d)
		}
	}
}
