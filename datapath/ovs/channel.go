package ovs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"towtank/datapath/openflow"
	"towtank/datapath/stream"
)

// Limits of the OpenFlow connection.
const (
	handshakeTimeout = 10 * time.Second
	echoEvery        = 5 * time.Second
	echoTimeout      = 3 * echoEvery // a switch that says nothing for so long is given up
	readBuffer       = 256 << 10
	packetOutQueue   = 1 << 20 // bytes that wait for the switch; behind more, packet-outs are dropped
)

// channel is one OpenFlow connection. One goroutine reads all the time and another one writes. Open vSwitch
// reads nothing while about a hundred of its answers wait for us, so whoever reads may not wait until it has
// read what we write.
type channel struct {
	c         net.Conn
	out       *stream.Writer
	unsolicit func(openflow.Message) // packet-ins and port status, from the reading goroutine
	calls     sync.Mutex             // held while a function that waited is called: never two at a time
	done      chan struct{}

	mu      sync.Mutex // never held while anything is read or written
	xid     uint32
	waiting map[uint32]func(openflow.Message, error) // by xid, which grow; an answer may come in parts
	err     error
	drained bool // nobody waits any more, and nobody may
	heard   time.Time
}

// errLost is the error of everything that was not answered when the connection ended.
var errLost = errors.New("the OpenFlow connection was lost")

// dialOpenFlow connects to a bridge's management socket and speaks the handshake.
func dialOpenFlow(ctx context.Context, network, address string, unsolicited func(openflow.Message)) (*channel, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("openflow: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	ch := &channel{c: c, unsolicit: unsolicited, waiting: map[uint32]func(openflow.Message, error){}, done: make(chan struct{}), heard: time.Now()}
	r := bufio.NewReaderSize(c, readBuffer)
	err = ch.handshake(r)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("openflow: %s: %w", address, err)
	}
	ch.out = stream.NewWriter(c, echoTimeout, ch.progress, ch.close)
	go ch.read(r)
	go ch.keepAlive()
	return ch, nil
}

func (ch *channel) handshake(r *bufio.Reader) error {
	deadline := time.Now().Add(handshakeTimeout)
	if err := ch.c.SetDeadline(deadline); err != nil {
		return err
	}
	b := openflow.AppendHello(nil, 1)
	if _, err := ch.c.Write(b); err != nil {
		return err
	}
	raw, err := readMessage(r)
	if err != nil {
		return err
	}
	h, m, err := openflow.Decode(raw)
	if err != nil {
		return err
	}
	if e, ok := m.(*openflow.Error); ok {
		return fmt.Errorf("the switch refuses OpenFlow 1.5 (set protocols=OpenFlow15): %w", e)
	}
	if _, ok := m.(openflow.Hello); !ok || h.Version < openflow.Version {
		return fmt.Errorf("the switch offers version byte %d, want %d: OpenFlow 1.5 (set protocols=OpenFlow15)", h.Version, openflow.Version)
	}
	ch.xid = 10
	b = openflow.AppendSetConfig(b[:0], 2, 0xffff) // else OVS sends no packet-ins
	b = openflow.AppendSetPacketInFormat(b, 3)
	if _, err := ch.c.Write(b); err != nil {
		return err
	}
	return ch.c.SetDeadline(time.Time{})
}

func readMessage(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, err
	}
	h, err := openflow.DecodeHeader(head)
	if err != nil {
		return nil, err
	}
	b := make([]byte, h.Length)
	_, err = io.ReadFull(r, b)
	return b, err
}

func (ch *channel) read(r *bufio.Reader) {
	defer ch.drain()
	for {
		raw, err := readMessage(r)
		if err != nil {
			ch.close(err)
			return
		}
		h, m, err := openflow.Decode(raw)
		if err != nil {
			ch.close(err) // what follows cannot be trusted
			return
		}
		ch.mu.Lock()
		ch.heard = time.Now()
		f := ch.waiting[h.XID]
		ch.mu.Unlock()
		switch m := m.(type) {
		case openflow.EchoRequest:
			_ = ch.send(func(b []byte) ([]byte, error) { return openflow.AppendEchoReply(b, h.XID, m.Data), nil })
		case *openflow.PacketIn, openflow.PortStatus:
			if ch.unsolicit != nil {
				ch.unsolicit(m)
			}
		default:
			if f != nil && m != nil {
				ch.calls.Lock()
				f(m, nil)
				ch.calls.Unlock()
			}
		}
	}
}

// drain tells everybody who waits that the connection ended, in the order in which they asked.
func (ch *channel) drain() {
	ch.mu.Lock()
	waiting, err := ch.waiting, ch.err
	ch.waiting, ch.drained = map[uint32]func(openflow.Message, error){}, true
	ch.mu.Unlock()
	for _, xid := range slices.Sorted(maps.Keys(waiting)) {
		ch.calls.Lock()
		waiting[xid](nil, err)
		ch.calls.Unlock()
	}
	close(ch.done)
}

// keepAlive asks a silent switch whether it is there, and ends the connection of one that is not.
func (ch *channel) keepAlive() {
	t := time.NewTicker(echoEvery)
	defer t.Stop()
	for {
		select {
		case <-ch.done:
			return
		case <-t.C:
		}
		ch.mu.Lock()
		silent := time.Since(ch.heard)
		ch.mu.Unlock()
		if silent > echoTimeout {
			ch.close(fmt.Errorf("no answer for %s", silent.Round(time.Second)))
			return
		}
		if silent > echoEvery {
			_ = ch.send(func(b []byte) ([]byte, error) { return openflow.AppendEchoRequest(b, 0), nil })
		}
	}
}

// newXIDs reserves n transaction ids.
func (ch *channel) newXIDs(n int) uint32 {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	first := ch.xid
	ch.xid += uint32(n)
	return first
}

// wait has f called with every answer to the message, and with an error when the connection ends; never by
// the caller's goroutine. If it has ended already, those who wait are told in any order. It must be called before the message is sent; forget ends it.
func (ch *channel) wait(xid uint32, f func(openflow.Message, error)) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.drained {
		ch.waiting[xid] = f
		return
	}
	err := ch.err
	go func() {
		ch.calls.Lock()
		f(nil, err)
		ch.calls.Unlock()
	}()
}

func (ch *channel) forget(xid uint32) {
	ch.mu.Lock()
	delete(ch.waiting, xid)
	ch.mu.Unlock()
}

// send queues what f appends, behind what was sent before, and returns at once. An error of f queues nothing and
// is returned. When the connection ends, those who wait for an answer are told; send itself tells only that it
// has ended already.
func (ch *channel) send(f func([]byte) ([]byte, error)) error {
	ch.mu.Lock()
	err := ch.err
	ch.mu.Unlock()
	if err != nil {
		return err
	}
	return ch.out.Send(f)
}

// progress is called when the switch has taken a part of something long: it lives, though the echo request
// behind that has not reached it.
func (ch *channel) progress() {
	ch.mu.Lock()
	ch.heard = time.Now()
	ch.mu.Unlock()
}

// close ends the connection; the reading goroutine tells those who wait.
func (ch *channel) close(err error) {
	ch.mu.Lock()
	first := ch.err == nil
	if first {
		ch.err = fmt.Errorf("%w: %w", errLost, err)
	}
	ch.mu.Unlock()
	if first {
		ch.c.Close()
		ch.out.Stop()
	}
}

// barrier has done called when the switch has done everything that was sent before.
func (ch *channel) barrier(done func(error)) {
	xid := ch.newXIDs(1)
	ch.wait(xid, func(_ openflow.Message, err error) {
		ch.forget(xid)
		done(err)
	})
	_ = ch.send(func(b []byte) ([]byte, error) { return openflow.AppendBarrierRequest(b, xid), nil })
}
