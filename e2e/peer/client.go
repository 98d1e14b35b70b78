package peer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Client talks to a peer. Its methods may be called from any goroutine; requests don't wait for each other.
type Client struct {
	mu      sync.Mutex
	in      io.Writer
	next    uint64
	waiting map[uint64]chan reply
	ended   error // set when the peer is gone
}

// ErrGone is the error of a peer that has ended.
var ErrGone = errors.New("the peer has ended")

// NewClient returns a client of a peer by its standard input and output.
func NewClient(in io.Writer, out io.Reader) *Client {
	c := &Client{in: in, waiting: map[uint64]chan reply{}}
	go c.read(out)
	return c
}

func (c *Client) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	var err error
	for lines.Scan() {
		var r reply
		if err = json.Unmarshal(lines.Bytes(), &r); err != nil {
			break
		}
		c.mu.Lock()
		ch := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- r
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = ErrGone
	if err != nil {
		c.ended = fmt.Errorf("%w: %w", ErrGone, err)
	}
	for _, ch := range c.waiting {
		close(ch)
	}
	c.waiting = nil
}

// maxLine bounds one line, in bytes: a frame of 64 KiB in base64 has about 90,000.
const maxLine = 1 << 18

func (c *Client) call(r request) (reply, error) {
	ch := make(chan reply, 1)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return reply{}, c.ended
	}
	c.next++
	r.ID = c.next
	c.waiting[r.ID] = ch
	line, err := json.Marshal(r)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	if err != nil {
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		return reply{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	c.mu.Unlock()
	got, ok := <-ch
	if !ok {
		return reply{}, ErrGone
	}
	if got.Err != "" {
		return got, errors.New(got.Err)
	}
	return got, nil
}

// Serve has the peer serve a port, under another name if it does already.
func (c *Client) Serve(p Port) error {
	_, err := c.call(request{Op: opServe, Port: &p})
	return err
}

// Stop ends serving a port.
func (c *Client) Stop(p Port) error {
	_, err := c.call(request{Op: opStop, Port: &p})
	return err
}

// Dial makes one connection, or sends one datagram or echo request.
func (c *Client) Dial(f Flow) (Result, error) {
	r, err := c.call(request{Op: opDial, Flow: &f})
	return r.Result, err
}

// Open is Dial with a connection that stays open for Send; 0 is no connection.
func (c *Client) Open(f Flow) (uint64, Result, error) {
	r, err := c.call(request{Op: opOpen, Flow: &f})
	return r.Conn, r.Result, err
}

// Send sends once more on a connection: size, don't-fragment and token are those of f.
func (c *Client) Send(conn uint64, f Flow) (Result, error) {
	r, err := c.call(request{Op: opSend, Conn: conn, Flow: &f})
	return r.Result, err
}

// Close ends a connection.
func (c *Client) Close(conn uint64) error {
	_, err := c.call(request{Op: opClose, Conn: conn})
	return err
}

// Transmit sends a frame by a link as it is.
func (c *Client) Transmit(link string, frame []byte) error {
	_, err := c.call(request{Op: opTransmit, Link: link, Frame: frame})
	return err
}

// Transfer sends random bytes on a new TCP connection; sent and received are the checksums (SHA-256) at the
// two ends.
func (c *Client) Transfer(f Flow, bytes int64) (sent, received string, err error) {
	r, err := c.call(request{Op: opTransfer, Flow: &f, Bytes: bytes})
	return r.Sum, r.Result.Note, err
}
