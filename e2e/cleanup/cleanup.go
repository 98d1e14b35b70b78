// Package cleanup takes down what a process started outside itself (processes, namespaces, directories) when a
// signal ends it: SIGINT, SIGTERM or SIGHUP.
package cleanup

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// task is one thing to take down.
type task struct{ do func() }

var pending struct {
	sync.Mutex
	list   []*task
	notify sync.Once
}

// OnSignal has do called if a signal ends this process, after what was added later. done says that there is
// nothing to take down any more.
func OnSignal(do func()) (done func()) {
	pending.notify.Do(func() {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		go wait(ch)
	})
	t := &task{do}
	pending.Lock()
	defer pending.Unlock()
	pending.list = append(pending.list, t)
	return func() {
		pending.Lock()
		defer pending.Unlock()
		pending.list = slices.DeleteFunc(pending.list, func(x *task) bool { return x == t })
	}
}

// Run takes down what is still there: programs call it before they end.
func Run() {
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
	Run()
	signal.Reset(sig)
	if n, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), n)
	}
}
