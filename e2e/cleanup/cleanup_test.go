package cleanup_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"towtank/e2e/cleanup"
)

// asChild makes a process of this test the one that is ended.
const asChild = "TOWTANK_TEST_CLEANUP_CHILD"

// A signal falls between the start of something and its being noted: what is taken down waits for whoever starts it,
// as the end of a namespace waits for its thread. The process ends all the same.
func TestSignalWhileSomethingIsStarted(t *testing.T) {
	if os.Getenv(asChild) != "" {
		child()
	}
	c := exec.Command(os.Args[0], "-test.run=^TestSignalWhileSomethingIsStarted$")
	c.Env = append(os.Environ(), asChild+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
	defer late.Stop()
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q: %v", line, err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(r)
	err = c.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || !strings.Contains(string(rest), "taken down") {
		t.Errorf("the process ended with %v, and said %q", err, rest)
	}
}

func child() {
	ending, started := make(chan struct{}), make(chan struct{})
	_, err := cleanup.OnSignal(func() {
		close(ending)
		<-started
		fmt.Println("taken down")
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		<-ending
		if _, err := cleanup.OnSignal(func() { fmt.Println("not called") }); !errors.Is(err, cleanup.ErrEnding) {
			fmt.Println("noted:", err)
			os.Exit(1)
		}
		close(started)
	}()
	fmt.Println("ready")
	select {}
}
