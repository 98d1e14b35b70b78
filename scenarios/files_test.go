package scenarios_test

import (
	"flag"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"towtank/scenarios/spec"
)

var seeds = flag.Uint64("seeds", 3, "how many seeds each scenario file is run with")

// TestFiles runs every scenario file below this directory with several seeds, each twice.
func TestFiles(t *testing.T) {
	var files []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".scenario") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no scenario files")
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.ToSlash(name), ".scenario"), func(t *testing.T) {
			t.Parallel()
			f := spec.File(t, name)
			for seed := uint64(1); seed <= *seeds; seed++ {
				if report := spec.Check(f, seed); report != "" {
					t.Fatal(report)
				}
			}
		})
	}
}
