package database

import (
	"net"
	"testing"
	"time"

	"towtank/datapath/jsonrpc"
)

// The connection ends while the answer to Sync is handled: those who waited for ovs-vswitchd were told before this one
// begins to wait, and nobody comes to tell it.
func TestWaiterOfAConnectionThatEnded(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	c := &Client{conn: jsonrpc.New(near, nil)}
	go c.failWaiters()
	told := func(what string, ch <-chan error) {
		t.Helper()
		select {
		case err := <-ch:
			if err == nil {
				t.Errorf("%s: ovs-vswitchd is said to have taken it in", what)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: waits on", what)
		}
	}
	early, late := make(chan error, 1), make(chan error, 1)
	c.await(1, func(err error) { early <- err })
	c.Close()
	told("who waited before", early)
	c.await(2, func(err error) { late <- err })
	told("who waits after", late)
}
