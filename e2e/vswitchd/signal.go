package vswitchd

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// running are the servers that were started and not closed.
var running struct {
	sync.Mutex
	list   []*Server
	notify sync.Once
}

// register has the server closed if a signal ends this process.
func (s *Server) register() {
	running.notify.Do(func() {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		go closeOn(ch)
	})
	running.Lock()
	running.list = append(running.list, s)
	running.Unlock()
}

func (s *Server) unregister() {
	running.Lock()
	running.list = slices.DeleteFunc(running.list, func(x *Server) bool { return x == s })
	running.Unlock()
}

// closeOn closes all servers on a signal, and then lets the signal end the process as it would have.
func closeOn(ch chan os.Signal) {
	sig := <-ch
	running.Lock()
	list := slices.Clone(running.list)
	running.Unlock()
	for _, s := range list {
		s.kill()
		os.RemoveAll(s.dir)
	}
	signal.Reset(sig)
	if n, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), n)
	}
}
