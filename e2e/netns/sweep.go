//go:build linux

package netns

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vishvananda/netns"
)

var ownName = regexp.MustCompile(`^tt([0-9]+)-`)

// sweep removes the namespaces and directories of runs that were killed before they could. Their processes
// ended with them.
func sweep() {
	for _, dir := range []string{"/run/netns", os.TempDir()} {
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			m := ownName.FindStringSubmatch(e.Name())
			if m == nil {
				continue
			}
			if alive(m[1]) {
				continue
			}
			if e.IsDir() {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			} else {
				_ = netns.DeleteNamed(e.Name())
			}
		}
	}
}

// alive reports whether a process is there and has not ended: one that nobody has waited for has.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}
