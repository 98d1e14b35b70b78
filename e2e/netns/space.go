//go:build linux

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netns"

	"towtank/e2e/cleanup"
	"towtank/e2e/peer"
)

// space is a network namespace, with a thread inside it: what that starts is inside too, and ends with it
// (PR_SET_PDEATHSIG), so that a killed run leaves no process behind.
type space struct {
	name string
	work chan func()
	quit chan struct{} // closed to have the thread end
	done chan struct{} // closed when it has
	once sync.Once
	peer *peer.Client
	proc *process // of the peer
}

// prepared is whether /run/netns is a mount of its own. The first "ip netns add" on a machine makes it one, and takes what is
// mounted below along: what is made before that, and removed after it, stays below for good.
var prepared = sync.OnceValue(func() error {
	name := cleanup.Prefix(os.Getpid()) + "first"
	return errors.Join(command("", "ip", "netns", "add", name), command("", "ip", "netns", "delete", name))
})

// newSpace makes a network namespace with that name below /run/netns.
func newSpace(name string) (*space, error) {
	if err := errors.Join(cleanup.Ending(), prepared()); err != nil {
		return nil, err
	}
	s := &space{name: name, work: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	made := make(chan error)
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		h, err := netns.NewNamed(name)
		if err == nil {
			err = h.Close()
		}
		made <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-s.work:
				f()
			case <-s.quit:
				return
			}
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	// Ports that the kernel chooses are none that scenarios use.
	err := s.do(func() error {
		return errors.Join(noDetection(), sysctl("net/ipv4/ip_local_port_range", "20000 29999"), command("", "ip", "link", "set", "lo", "up"))
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return s, nil
}

// noDetection has IPv6 addresses of devices that are made later of use at once, and no routers asked for.
func noDetection() error {
	var errs []error
	for _, where := range []string{"all", "default"} {
		errs = append(errs, sysctl("net/ipv6/conf/"+where+"/accept_dad", "0"), sysctl("net/ipv6/conf/"+where+"/accept_ra", "0"),
			sysctl("net/ipv6/conf/"+where+"/router_solicitations", "0"))
	}
	return errors.Join(errs...)
}

// do runs f on the thread inside.
func (s *space) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case s.work <- func() { result <- f() }:
		return <-result
	case <-s.done:
		return fmt.Errorf("network namespace %s is gone", s.name)
	}
}

// run runs a program inside and returns what it prints.
func (s *space) run(args ...string) (string, error) {
	var out string
	err := s.do(func() (err error) {
		out, err = output("", args...)
		return err
	})
	if err != nil {
		err = fmt.Errorf("in %s: %w", s.name, err)
	}
	return out, err
}

// feed runs a program inside with a standard input.
func (s *space) feed(input string, args ...string) error {
	return s.do(func() error { return command(input, args...) })
}

// command runs a program where the thread is.
func command(input string, args ...string) error {
	_, err := output(input, args...)
	return err
}

func output(input string, args ...string) (string, error) {
	c := exec.Command(args[0], args[1:]...)
	c.Stdin = strings.NewReader(input)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

func sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
}

// process is a program that runs until it is told to end.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // after ended is closed
	log   *tail
}

// start starts a program inside. Its standard error is kept for people.
func (s *space) start(env []string, in io.Reader, out io.Writer, args ...string) (*process, error) {
	p := &process{ended: make(chan struct{}), log: &tail{}}
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdin, c.Stdout, c.Stderr = in, out, p.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // a Ctrl-C is for us alone
	p.cmd = c
	if err := s.do(c.Start); err != nil {
		return nil, fmt.Errorf("in %s: %s: %w", s.name, args[0], err)
	}
	go func() {
		p.err = c.Wait()
		close(p.ended)
	}()
	return p, nil
}

// signal sends a signal; a process that has ended takes none.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Signal(sig)
	}
}

// kill ends the process at once and waits for that.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// maxTail is how much of a program's output is kept, in bytes.
const maxTail = 64 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if n := len(t.text) - maxTail; n > 0 {
		t.text = append([]byte(nil), t.text[n:]...)
	}
	return len(b), nil
}

// String returns what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// startPeer starts the process that serves and dials.
func (s *space) startPeer(program string) error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, inR.Close(), inW.Close())
	}
	s.proc, err = s.start(nil, inR, outW, program)
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		return errors.Join(err, inW.Close(), outR.Close())
	}
	s.peer = peer.NewClient(inW, outR)
	go func() {
		<-s.proc.ended
		_, _ = inW.Close(), outR.Close()
	}()
	return nil
}

// close ends what was started inside and removes the namespace.
func (s *space) close() {
	s.once.Do(func() {
		if s.proc != nil {
			s.proc.kill()
		}
		close(s.quit)
		<-s.done
		_ = netns.DeleteNamed(s.name)
	})
}
