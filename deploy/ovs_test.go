package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script runs towtank-ovs in a network namespace of its own, with its files in a directory.
func script(dir string, args ...string) *exec.Cmd {
	c := exec.Command("unshare", append([]string{"--net", "./towtank-ovs"}, args...)...)
	c.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_DBDIR="+dir, "OVS_DATAPATH=netdev")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// serve runs it until the test ends.
func serve(t *testing.T, dir, what string) (cmd *exec.Cmd, ended chan error) {
	t.Helper()
	c := script(dir, what)
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() {
		ended <- c.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", what, said.String())
		}
	})
	return c, ended
}

// The script of the image runs Open vSwitch as the agent wants it, takes over what a killed one left, and ends
// when it is told to.
func TestOVSScript(t *testing.T) {
	if err := ovsAvailable(); err != nil {
		if os.Getenv("TOWTANK_ROOT") == "1" && os.Getenv("TOWTANK_OVS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine without root or Open vSwitch; CI fails above
	}
	dir, err := os.MkdirTemp("", "ovs") // short: the names of sockets are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	db, dbEnded := serve(t, dir, "db")
	within20s(t, "ovsdb-server answers", func() bool { return vsctl(dir, "show") == nil })
	first, firstEnded := serve(t, dir, "switch")
	ready := func() bool { return script(dir, "ready").Run() == nil }
	within20s(t, "ovs-vswitchd answers", ready)
	within20s(t, "the bridge is there", func() bool {
		_, err := os.Stat(filepath.Join(dir, "br-int.mgmt"))
		return err == nil
	})
	out, err := exec.Command("ovs-vsctl", "--db=unix:"+dir+"/db.sock", "get", "bridge", "br-int", "datapath_type", "fail_mode", "protocols").Output()
	if want := "netdev\nsecure\n[\"OpenFlow15\"]\n"; err != nil || strings.ReplaceAll(string(out), "[OpenFlow15]", `["OpenFlow15"]`) != want {
		t.Errorf("the bridge: %v, %q, want %q", err, out, want)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-firstEnded
	if ready() {
		t.Error("a dead ovs-vswitchd is ready")
	}
	second, secondEnded := serve(t, dir, "switch")
	within20s(t, "another ovs-vswitchd answers", ready)
	for _, p := range []struct {
		cmd   *exec.Cmd
		ended chan error
	}{{second, secondEnded}, {db, dbEnded}} {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s did not end within 10 s", p.cmd)
		}
	}
	if err := script(dir, "everything").Run(); err == nil {
		t.Error("an unknown word passed")
	}
}

func vsctl(dir string, args ...string) error {
	return exec.Command("ovs-vsctl", append([]string{"--db=unix:" + dir + "/db.sock", "--no-wait"}, args...)...).Run()
}

func ovsAvailable() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	for _, p := range []string{"unshare", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovsdb-tool"} {
		if _, err := exec.LookPath(p); err != nil {
			return err
		}
	}
	return nil
}
