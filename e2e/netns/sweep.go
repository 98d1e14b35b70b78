//go:build linux

package netns

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

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
			pid, err := strconv.Atoi(m[1])
			if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				continue // it runs
			}
			if e.IsDir() {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			} else {
				_ = netns.DeleteNamed(e.Name())
			}
		}
	}
}
