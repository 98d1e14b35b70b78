//go:build linux

package netns

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"towtank/e2e/cleanup"
	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// twoNodes has a packet of each kind between two nodes and to the outside, and an agent that is killed.
const twoNodes = `nodes n1 n2
label node/n2 egress=yes
external ext
pod default/a node=n1 app=web
pod default/b node=n2
apply e.yaml
settle
probe default/a -> default/b expect ok source=default/a via=n1 reply-via=n2
probe default/a -> default/b:8080/udp size=3000 expect ok backend=default/b
probe default/a -> default/b/icmp expect ok
probe default/a -> default/b:9 expect reject
probe default/a -> 10.96.200.200:80 expect drop
probe default/a -> ext expect ok source=172.18.0.50 via=n2
stream s default/a -> default/b every=50ms
agent * kill
agent * start
settle
stream-stop s expect lost<=0
expect-owner 172.18.0.50 node=n2
` + egress

func TestMain(m *testing.M) {
	status := m.Run()
	cleanup.Run()
	os.Exit(status)
}

func TestTwoNodes(t *testing.T) {
	if err := Available(); err != nil {
		if os.Getenv("TOWTANK_ROOT") == "1" && os.Getenv("TOWTANK_OVS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine without root or Open vSwitch; CI fails above
	}
	f, err := lang.Parse("two-nodes.scenario", []byte(twoNodes))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	end, err := Run(f, scenarios.Options{}, &report.Text{W: &b})
	if err != nil || end.Outcome != scenarios.Pass {
		t.Fatalf("%v\n%s", err, b.String())
	}
	left, err := filepath.Glob("/run/netns/" + cleanup.Prefix(os.Getpid()) + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("namespaces that are left: %v, %v", left, err)
	}
	out, err := exec.Command("ps", "-o", "args=", "--ppid", strconv.Itoa(os.Getpid())).Output()
	if err == nil && strings.Contains(string(out), "towtank-") {
		t.Errorf("processes that are left:\n%s", out)
	}
}

// TestNothingIsLeftBehind ends a run of two scenarios at once in the middle of it: by a signal, and at once.
func TestNothingIsLeftBehind(t *testing.T) {
	if err := Available(); err != nil {
		if os.Getenv("TOWTANK_ROOT") == "1" && os.Getenv("TOWTANK_OVS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine without root or Open vSwitch; CI fails above
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "towtank/cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, name+".scenario"), []byte(twoNodes), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		sig  os.Signal
		at   int // how many namespaces are there when it comes
	}{{"SIGTERM while nodes are built", syscall.SIGTERM, 2}, {"SIGINT while they run", syscall.SIGINT, 8}, {"SIGKILL", syscall.SIGKILL, 8}} {
		t.Run(c.name, func(t *testing.T) {
			if c.sig != syscall.SIGKILL {
				// A signal that this process ignores, as one in the background does, its child ignores, too; not one that it heeds.
				heeded := make(chan os.Signal, 1)
				signal.Notify(heeded, c.sig)
				defer signal.Stop(heeded)
			}
			cmd := exec.Command(filepath.Join(dir, "towtank"), "run", "--backend", "netns", "--jobs", "2", dir)
			var said strings.Builder
			cmd.Stdout = &said
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			left := func() (list []string) {
				for _, where := range []string{"/run/netns", os.TempDir()} {
					found, err := filepath.Glob(filepath.Join(where, cleanup.Prefix(cmd.Process.Pid)+"*"))
					if err != nil {
						t.Error(err)
					}
					list = append(list, found...)
				}
				return list
			}
			g := gomega.NewWithT(t)
			g.Eventually(func() int { return len(left()) }, "30s", "10ms").Should(gomega.BeNumerically(">=", c.at), "namespaces and directories of the run")
			if err := cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			g.Eventually(ended, "30s").Should(gomega.Receive(gomega.HaveOccurred()), "the end by a signal")
			g.Expect(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()).To(gomega.Equal(c.sig), "what ended it; it said %s", said.String())
			g.Expect(said.String()).NotTo(gomega.ContainSubstring("FAIL"), "an end by a signal is no result")
			g.Eventually(left, "10s", "50ms").Should(gomega.BeEmpty(), "what is left")
		})
	}
}

func TestReasonsToSkip(t *testing.T) {
	for text, want := range map[string]string{
		"nodes n1\nadvance 40s\nadvance 21s\n":             "line 3: more than 1m0s",
		"nodes n1\n[!netns] advance 90s\n":                 "",
		"nodes n1\nfail n1 switch mode=refuse\n":           "",
		"nodes n1\nfail n1 api-status mode=conflict\n":     "",
		"nodes n1\nclock n1 skew=5s\n":                     "line 2: all nodes have the clock",
		"network lan cidr=10.99.0.0/24 vlan=7\nnodes n1\n": "line 1: the kernel has no VLAN",
	} {
		f, err := lang.Parse("x.scenario", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := unable(f)
		if err != nil || !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%q: want %q, got %q, %v", text, want, got, err)
		}
	}
}
