//go:build linux

package peer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// peer is the process.
type peer struct {
	mu     sync.Mutex
	out    *json.Encoder
	served map[Port]*server // by protocol and port, without a name
	conns  map[uint64]*conn
	next   uint64
}

// Run does what it is told until the input ends.
func Run(in io.Reader, out io.Writer) error {
	p := &peer{out: json.NewEncoder(out), served: map[Port]*server{}, conns: map[uint64]*conn{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("request %q: %w", lines.Text(), err)
		}
		go p.answer(r)
	}
	return lines.Err()
}

func (p *peer) answer(r request) {
	var out reply
	err := p.do(r, &out)
	out.ID = r.ID
	if err != nil {
		out.Err = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(out) // who does not read has gone, and the input ends
}

func (p *peer) do(r request, out *reply) (err error) {
	switch r.Op {
	case opServe:
		return p.serve(*r.Port)
	case opStop:
		return p.stop(*r.Port)
	case opDial:
		c, res, err := dial(r.Flow)
		if c != nil {
			c.close()
		}
		out.Result = res
		return err
	case opOpen:
		c, res, err := dial(r.Flow)
		out.Result = res
		if c != nil {
			out.Conn = p.keep(c)
		}
		return err
	case opSend:
		c := p.conn(r.Conn)
		if c == nil {
			return fmt.Errorf("there is no connection %d", r.Conn)
		}
		out.Result = c.send(r.Flow)
		return nil
	case opClose:
		if c := p.conn(r.Conn); c != nil {
			c.close()
		}
		return nil
	case opTransmit:
		return transmit(r.Link, r.Frame)
	case opTransfer:
		out.Sum, out.Result.Note, err = transfer(r.Flow, r.Bytes)
		return err
	}
	return fmt.Errorf("operation %q is not known", r.Op)
}

func (p *peer) keep(c *conn) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.conns[p.next] = c
	return p.next
}

func (p *peer) conn(id uint64) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[id]
}
