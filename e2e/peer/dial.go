//go:build linux

package peer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection, or a socket that is connected to one destination.
type conn struct {
	mu    sync.Mutex // one question at a time
	flow  Flow
	net   net.Conn
	lines *bufio.Reader // TCP only
	dead  *Result       // what ended it
}

// dial connects and asks once. Without a connection c is nil. The error is about the call; what the network
// does is in the result.
func dial(f *Flow) (c *conn, r Result, err error) {
	if f.Proto == "icmp" {
		r, err = echo(f)
		return nil, r, err
	}
	if f.Proto != "tcp" && f.Proto != "udp" {
		return nil, r, fmt.Errorf("protocol %q: allowed are tcp, udp, icmp", f.Proto)
	}
	nc, err := connect(f)
	if err != nil {
		r, err = judge(err)
		return nil, r, err
	}
	c = &conn{flow: *f, net: nc}
	if f.Proto == "tcp" {
		c.lines = bufio.NewReader(nc)
	}
	if f.HTTP {
		return c, c.get(), nil
	}
	return c, c.send(f), nil
}

func connect(f *Flow) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), AnswerWithin)
	defer cancel()
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		if e := rc.Control(func(fd uintptr) { err = prepare(int(fd), f) }); e != nil {
			return e
		}
		return err
	}}
	local := netip.IPv4Unspecified()
	if f.To.Is6() {
		local = netip.IPv6Unspecified()
	}
	if at := netip.AddrPortFrom(local, f.SPort); f.Proto == "tcp" {
		d.LocalAddr = net.TCPAddrFromAddrPort(at)
	} else {
		d.LocalAddr = net.UDPAddrFromAddrPort(at)
	}
	return d.DialContext(ctx, f.Proto, netip.AddrPortFrom(f.To, f.Port).String())
}

// prepare sets the options of a client's socket. Without don't-fragment its packets are cut at the sender.
func prepare(fd int, f *Flow) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if f.Proto == "tcp" {
		// The port can be used again at once, as those of the simulator.
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	return discover(fd, f)
}

func discover(fd int, f *Flow) error {
	mode := unix.IP_PMTUDISC_DONT
	if f.DF {
		mode = unix.IP_PMTUDISC_PROBE
	}
	if f.To.Is6() {
		if !f.DF {
			mode = unix.IPV6_PMTUDISC_DONT
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, mode)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, mode)
}

// control runs f with the descriptor of a socket.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// judge turns what a socket says into a verdict; an error that is not about the network stays one.
func judge(err error) (Result, error) {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Result{Verdict: Reject, Reset: errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), Note: err.Error()}, nil
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EACCES):
		return Result{}, err
	case errors.As(err, &timeout) && timeout.Timeout():
		return Result{Verdict: Drop}, nil
	}
	// No route, no neighbour, too big for the link, or the other end ended the connection.
	return Result{Verdict: Drop, Note: err.Error()}, nil
}

// Bytes of headers without options.
const (
	header4   = 20
	header6   = 40
	headerTCP = 20
	headerUDP = 8
)

// padded fills a text up so that its packet has the size that is asked for.
func padded(f *Flow, text string) []byte {
	header := header4
	if f.To.Is6() {
		header = header6
	}
	if f.Proto == "tcp" {
		header += headerTCP
	} else {
		header += headerUDP // ICMP echo has as many
	}
	b := []byte(text)
	if missing := f.Size - header - len(b); missing > 0 {
		b = append(b, bytes.Repeat([]byte{'.'}, missing)...)
	}
	return b
}

// send asks once and waits for the answer.
func (c *conn) send(f *Flow) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return *c.dead
	}
	c.flow.Size, c.flow.DF = f.Size, f.DF
	if c.flow.Proto == "udp" {
		if err := control(c.net.(*net.UDPConn), func(fd int) error { return discover(fd, &c.flow) }); err != nil {
			return Result{Verdict: Drop, Note: err.Error()}
		}
	}
	question := padded(&c.flow, QuestionMark+f.Token+" ")
	if c.flow.Proto == "tcp" {
		question[len(question)-1] = '\n'
	}
	_ = c.net.SetDeadline(time.Now().Add(AnswerWithin))
	if _, err := c.net.Write(question); err != nil {
		return c.ended(err)
	}
	for {
		text, err := c.read()
		if err != nil {
			return c.ended(err)
		}
		rest, mine := strings.CutPrefix(text, AnswerMark+f.Token+" ")
		if !mine {
			continue // a late answer to what was asked before
		}
		var s seen
		if err := json.Unmarshal([]byte(rest), &s); err != nil {
			return Result{Verdict: Drop, Note: "the answer cannot be read: " + err.Error()}
		}
		return Result{Verdict: OK, Name: s.Name, Port: s.Port, Source: s.Source, To: s.To}
	}
}

func (c *conn) read() (string, error) {
	if c.lines != nil {
		return c.lines.ReadString('\n')
	}
	b := make([]byte, maxDatagram)
	n, err := c.net.Read(b)
	return string(b[:n]), err
}

// ended judges an error of an open connection; a reset ends it for good.
func (c *conn) ended(err error) Result {
	r, other := judge(err)
	if other != nil {
		r = Result{Verdict: Drop, Note: other.Error()}
	}
	if errors.Is(err, io.EOF) {
		r = Result{Verdict: Reject, Reset: true, Note: "the other end closed it"}
	}
	if r.Reset {
		c.dead = &r
	}
	return r
}

// get asks a health port.
func (c *conn) get() Result {
	_ = c.net.SetDeadline(time.Now().Add(AnswerWithin))
	if _, err := io.WriteString(c.net, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		return c.ended(err)
	}
	text, err := c.read()
	if err != nil {
		return c.ended(err)
	}
	r := Result{Verdict: OK, To: c.flow.To, Port: c.flow.Port}
	if _, err := fmt.Sscanf(text, "HTTP/1.%1d %d", new(int), &r.HTTP); err != nil {
		r.Note = "not an answer of HTTP: " + text
	}
	return r
}

func (c *conn) close() { _ = c.net.Close() }

// transferLimit bounds a transfer.
const transferLimit = 2 * time.Minute

// transfer sends random bytes and returns their checksum, and that of the other end.
func transfer(f *Flow, count int64) (sent, received string, err error) {
	nc, err := connect(f)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(transferLimit))
	if _, err := fmt.Fprintf(nc, "%s%d\n", transferMark, count); err != nil {
		return "", "", err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(nc, sum), rand.Reader, count); err != nil {
		return "", "", err
	}
	line, err := bufio.NewReader(nc).ReadString('\n')
	return hex.EncodeToString(sum.Sum(nil)), strings.TrimSpace(line), err
}
