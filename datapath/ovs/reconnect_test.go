package ovs_test

import (
	"net"
	"os"
	"sync/atomic"
	"testing"

	"towtank/datapath"
	"towtank/datapath/ovsdb"
)

// answerer listens on a path and gives connections to f.
func answerer(t *testing.T, path string, f func(net.Conn)) {
	t.Helper()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
		}
	}()
}

// vswitchd is down and the database is up: however often the connection is tried, ports that are as they were are
// told of neither meanwhile nor afterwards. The caller renders every Service for an event of one of them.
func TestPortsAreToldOnceHoweverOftenTheConnectionIsTried(t *testing.T) {
	l := start(t)
	var ports []datapath.Object
	for _, text := range []string{"p1 type=dummy ofport_request=5", "p2 type=dummy ofport_request=6", "p3 type=none"} {
		p, err := ovsdb.ParsePort(text)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, p)
	}
	l.done(datapath.StagePortAdd, put(ports...)...)
	known := func() map[string]uint32 {
		n := map[string]uint32{}
		for _, e := range l.ports {
			n[e.Name] = e.OFPort
		}
		return n
	}
	l.until("two ports", func() bool { n := known(); return n["p1"] == 5 && n["p2"] == 6 })
	if err := l.server.Kill(); err != nil {
		t.Fatal(err)
	}
	l.until("the disconnection", func() bool { return len(l.events) == 1 })
	told := len(l.ports)
	var tries atomic.Int32
	hold := make(chan net.Conn, 10_000)
	answerer(t, l.server.Control(), func(c net.Conn) { hold <- c })
	answerer(t, l.server.OpenFlow("br-int"), func(c net.Conn) {
		tries.Add(1)
		_ = c.Close()
	})
	l.until("ten attempts", func() bool {
		l.Barrier(func(error) {}) // the loop has something to do
		return tries.Load() >= 10
	})
	if n := len(l.ports) - told; n != 0 {
		t.Errorf("%d events of unchanged ports while vswitchd is down: %v", n, l.ports[told:])
	}
	if err := l.server.StartAgain(); err != nil {
		t.Fatal(err)
	}
	l.until("the connection", func() bool { return len(l.events) == 2 })
	last := map[string]datapath.PortEvent{}
	for _, e := range l.ports {
		if e == last[e.Name] {
			t.Errorf("told again: %+v", e)
		}
		last[e.Name] = e
	}
	if n := known(); n["p1"] != 5 || n["p2"] != 6 {
		t.Errorf("ports %v", n)
	}
}
