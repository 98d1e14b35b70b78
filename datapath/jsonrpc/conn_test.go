package jsonrpc_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"towtank/datapath/jsonrpc"
)

// silent is a connection to a side that reads and never answers.
func silent(t *testing.T) *jsonrpc.Conn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	go func() {
		b := make([]byte, 1000)
		for {
			if _, err := far.Read(b); err != nil {
				return
			}
		}
	}()
	return jsonrpc.New(near, nil)
}

func TestSilentSideIsGivenUp(t *testing.T) {
	c := silent(t)
	c.KeepAlive(20 * time.Millisecond)
	answer := make(chan error, 1)
	c.Go("transact", []any{}, func(_ json.RawMessage, err error) { answer <- err })
	select {
	case err := <-answer:
		if err == nil || !strings.Contains(err.Error(), "no answer for") {
			t.Errorf("the request ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a request waits for a side that is silent")
	}
}

func TestCallHasALimit(t *testing.T) {
	c := silent(t)
	if _, err := c.CallWithin(20*time.Millisecond, "version", []string{}); err == nil || !strings.Contains(err.Error(), "version: no answer within") {
		t.Errorf("the call ended with %v", err)
	}
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Error("the connection is used on")
	}
}

// A side that only answers echo requests is alive.
func TestEchoKeepsTheConnection(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	other := jsonrpc.New(far, nil) // answers echo requests
	c := jsonrpc.New(near, nil)
	c.KeepAlive(400 * time.Millisecond)
	select {
	case <-c.Done():
		t.Errorf("given up: %v", c.Err())
	case <-other.Done():
		t.Errorf("given up: %v", c.Err())
	case <-time.After(2 * time.Second):
	}
	c.Close()
}
