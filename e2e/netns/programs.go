//go:build linux

package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"towtank/e2e/cleanup"
	"towtank/e2e/vswitchd"
)

// programs are the paths of our programs that run on nodes.
type programs struct{ agent, controller, cni, peer string }

var built struct {
	sync.Once
	p   *programs
	err error
}

// ourPrograms finds our programs beside this one; where they are not, it builds them, once for all runs of this
// process.
func ourPrograms() (*programs, error) {
	built.Do(func() { built.p, built.err = findPrograms() })
	return built.p, built.err
}

// Programs returns an error if our programs are not there and cannot be built: Run needs them.
func Programs() error {
	_, err := ourPrograms()
	return err
}

// programsAt names the directory of our programs for what is not installed beside them, such as tests.
const programsAt = "TOWTANK_PROGRAMS"

func findPrograms() (*programs, error) {
	if dir := os.Getenv(programsAt); dir != "" {
		p := programsIn(dir)
		if !p.there() {
			return nil, fmt.Errorf("%s=%s: towtank-agent, -controller, -cni and -peer are not all there", programsAt, dir)
		}
		return p, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if p := programsIn(filepath.Dir(self)); p.there() {
		return p, nil
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	module, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || module != "towtank" {
		return nil, fmt.Errorf("towtank-agent, -controller, -cni and -peer are not beside %s, and cannot be built: this is not towtank's source tree (make build)", self)
	}
	to, err := os.MkdirTemp("", cleanup.Prefix(os.Getpid()))
	if err != nil {
		return nil, err
	}
	if _, err := cleanup.OnSignal(func() { os.RemoveAll(to) }); err != nil {
		return nil, errors.Join(err, os.RemoveAll(to))
	}
	p := programsIn(to)
	build := exec.Command("go", "build", "-o", to, "./cmd/towtank-agent", "./cmd/towtank-controller", "./cmd/towtank-cni", "./cmd/towtank-peer")
	build.Dir = dir
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, text)
	}
	return p, nil
}

func programsIn(dir string) *programs {
	at := func(name string) string { return filepath.Join(dir, "towtank-"+name) }
	return &programs{at("agent"), at("controller"), at("cni"), at("peer")}
}

func (p *programs) there() bool {
	for _, f := range []string{p.agent, p.controller, p.cni, p.peer} {
		if _, err := os.Stat(f); err != nil {
			return false
		}
	}
	return true
}

// Available says what is missing on this machine, nil if nothing is.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root")
	}
	for _, p := range []string{"ip", "ovs-vsctl", "ovs-ofctl", "iptables-restore", "ip6tables-restore", "ipset", "nft", "ethtool", "conntrack"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%w (make e2e installs what is missing)", err)
		}
	}
	return vswitchd.Available()
}
