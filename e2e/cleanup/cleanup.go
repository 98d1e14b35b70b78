// Package cleanup takes down what a process started outside itself (processes, namespaces, directories) however it
// ends. On a signal (SIGINT, SIGTERM, SIGHUP) that is done in order, and nothing new begins. What is left then, or when
// the process is killed, a guard removes: a process that waits for the end of this one. Started processes end with the
// thread that started them (PR_SET_PDEATHSIG).
package cleanup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// task is one thing to take down.
type task struct{ do func() }

var pending struct {
	running sync.Mutex // held while tasks are done
	sync.Mutex
	list   []*task
	ending bool
	begin  sync.Once
	guard  *os.File // closed by the end of this process
}

// Prefix begins the names of everything outside a process: directories in os.TempDir(), network namespaces.
func Prefix(pid int) string { return fmt.Sprintf("tt%d-", pid) }

// ErrEnding says that a signal is ending this process: nothing is started any more.
var ErrEnding = errors.New("a signal is ending this process")

// Ending returns ErrEnding once a signal came.
func Ending() error {
	pending.Lock()
	defer pending.Unlock()
	if pending.ending {
		return ErrEnding
	}
	return nil
}

// OnSignal has do called if a signal ends this process, after what was added later. done says that there is
// nothing to take down any more. Once a signal came it is ErrEnding: do is not called, and the caller takes down what
// it has made. It must not wait for the end there: what is taken down may be waiting for the caller.
func OnSignal(do func()) (done func(), err error) {
	pending.begin.Do(func() {
		// What whoever started this process had it ignore stays ignored: SIGHUP under nohup, SIGINT in the background.
		heeded := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
		if len(heeded) > 0 { // none would be all
			ch := make(chan os.Signal, 1)
			signal.Notify(ch, heeded...)
			go wait(ch)
		}
		pending.guard = startGuard()
	})
	t := &task{do}
	pending.Lock()
	defer pending.Unlock()
	if pending.ending {
		return nil, ErrEnding
	}
	pending.list = append(pending.list, t)
	return func() {
		pending.Lock()
		defer pending.Unlock()
		pending.list = slices.DeleteFunc(pending.list, func(x *task) bool { return x == t })
	}, nil
}

// sweep is what the guard runs: its standard input ends with the process that it guards.
const sweep = `cat >/dev/null
for round in 1 2 3; do
  for space in /run/netns/"$0"*; do
    [ -e "$space" ] && ip netns delete "${space##*/}"
  done
  rm -rf "$1/$0"*
  sleep 0.2
done`

// startGuard starts the guard in a session of its own, where no signal of a terminal comes.
func startGuard() *os.File {
	in, out, err := os.Pipe()
	if err != nil {
		return nil // what is left is removed by the next run
	}
	defer func() { _ = in.Close() }()
	c := exec.Command("sh", "-c", sweep, Prefix(os.Getpid()), os.TempDir())
	c.Stdin = in
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		_ = out.Close()
		return nil
	}
	go func() { _ = c.Wait() }()
	return out
}

// Run takes down what is still there: programs call it before they end. If that is under way already, it waits for it. If a
// signal is ending the process it does not return: what went wrong meanwhile is the signal's doing, and no result.
func Run() {
	takeDown()
	if Ending() != nil {
		select {}
	}
}

func takeDown() {
	pending.running.Lock()
	defer pending.running.Unlock()
	pending.Lock()
	list := slices.Clone(pending.list)
	pending.list = nil
	pending.Unlock()
	for _, t := range slices.Backward(list) {
		t.do()
	}
}

// wait ends what is there on a signal, and then lets the signal end the process as it would have.
func wait(ch chan os.Signal) {
	sig := <-ch
	pending.Lock()
	pending.ending = true
	pending.Unlock()
	takeDown()
	signal.Reset(sig)
	if n, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), n)
	}
}
