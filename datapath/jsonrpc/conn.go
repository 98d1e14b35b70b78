// Package jsonrpc is JSON-RPC 1.0 over a stream, as Open vSwitch's database (RFC 7047) and its control
// sockets speak it.
package jsonrpc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"towtank/datapath/stream"
)

// writeTimeout is how long the other side may read nothing of what it is sent before it is given up.
const writeTimeout = 15 * time.Second

// Conn is a connection. One goroutine reads and calls the functions given to Go and New, another one writes.
type Conn struct {
	c      net.Conn
	out    *stream.Writer
	notify func(method string, params json.RawMessage)

	mu      sync.Mutex // never held while anything is read or written
	next    uint64
	pending map[uint64]func(json.RawMessage, error)
	heard   time.Time
	err     error // why the connection ended
	done    chan struct{}
}

type message struct {
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	ID     json.RawMessage `json:"id"`
}

// New speaks on an open connection. notify, if not nil, hears notifications of the other side. Echo
// requests are answered.
func New(c net.Conn, notify func(method string, params json.RawMessage)) *Conn {
	conn := &Conn{c: c, notify: notify, pending: map[uint64]func(json.RawMessage, error){}, done: make(chan struct{}), heard: time.Now()}
	conn.out = stream.NewWriter(c, writeTimeout, nil, conn.end)
	go conn.read()
	return conn
}

// Go queues a request and returns; done is called once, with the result from the reading goroutine, or with an
// error from whichever goroutine ends the connection or, if it is down, at once.
func (c *Conn) Go(method string, params any, done func(json.RawMessage, error)) {
	p, err := json.Marshal(params)
	if err != nil {
		done(nil, fmt.Errorf("%s: %w", method, err))
		return
	}
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		done(nil, err)
		return
	}
	c.next++
	id := c.next
	c.pending[id] = done
	c.mu.Unlock()
	c.write(message{Method: method, Params: p, ID: json.RawMessage(fmt.Sprint(id))})
}

// Call sends a request and waits for the result.
func (c *Conn) Call(method string, params any) (json.RawMessage, error) {
	type reply struct {
		result json.RawMessage
		err    error
	}
	ch := make(chan reply, 1)
	c.Go(method, params, func(r json.RawMessage, err error) { ch <- reply{r, err} })
	r := <-ch
	return r.result, r.err
}

// CallWithin is Call with a limit. The connection is closed when that passes: what it would answer later is then
// not known.
func (c *Conn) CallWithin(limit time.Duration, method string, params any) (json.RawMessage, error) {
	t := time.AfterFunc(limit, func() { c.end(fmt.Errorf("%s: no answer within %s", method, limit)) })
	defer t.Stop()
	return c.Call(method, params)
}

// KeepAlive asks the other side, after each silence of every, whether it is there, and ends the connection of one
// that then says nothing until three times as long has passed. The other side must answer echo requests.
func (c *Conn) KeepAlive(every time.Duration) {
	go func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-c.done:
				return
			case <-t.C:
			}
			c.mu.Lock()
			silent := time.Since(c.heard)
			c.mu.Unlock()
			if silent > 3*every {
				c.end(fmt.Errorf("no answer for %s", silent.Round(time.Millisecond)))
				return
			}
			if silent >= every {
				c.Go("echo", []any{}, func(json.RawMessage, error) {})
			}
		}
	}()
}

// Close ends the connection; requests without an answer get an error.
func (c *Conn) Close() { c.end(net.ErrClosed) }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil if it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// write queues one message.
func (c *Conn) write(m message) {
	b, err := json.Marshal(m)
	if err != nil {
		c.end(err)
		return
	}
	_ = c.out.Send(func(q []byte) ([]byte, error) { return append(q, b...), nil }) // an error: it ended, and told so
}

func (c *Conn) read() {
	d := json.NewDecoder(bufio.NewReader(c.c))
	for {
		var m message
		if err := d.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the other side closed the connection")
			}
			c.end(err)
			return
		}
		c.mu.Lock()
		c.heard = time.Now()
		c.mu.Unlock()
		c.handle(m)
	}
}

func (c *Conn) handle(m message) {
	switch {
	case m.Method == "echo":
		c.write(message{Result: m.Params, Error: json.RawMessage("null"), ID: m.ID})
	case m.Method != "":
		if c.notify != nil {
			c.notify(m.Method, m.Params)
		}
	default:
		var id uint64
		if json.Unmarshal(m.ID, &id) != nil {
			return
		}
		c.mu.Lock()
		done := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if done == nil {
			return
		}
		if len(m.Error) > 0 && string(m.Error) != "null" {
			done(nil, &Error{m.Error})
			return
		}
		done(m.Result, nil)
	}
}

func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("%s: %w", c.c.RemoteAddr(), err)
	pending := c.pending
	c.pending = map[uint64]func(json.RawMessage, error){}
	c.mu.Unlock()
	c.c.Close()
	c.out.Stop()
	for _, id := range slices.Sorted(maps.Keys(pending)) { // in the order in which they were asked
		pending[id](nil, c.err)
	}
	close(c.done)
}

// Error is an error that the other side answered with.
type Error struct{ Value json.RawMessage }

// Error returns the text, without quotes if it is one.
func (e *Error) Error() string {
	var s string
	if json.Unmarshal(e.Value, &s) == nil {
		return s
	}
	return string(e.Value)
}
