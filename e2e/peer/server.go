//go:build linux

package peer

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// server serves one port until its sockets are closed.
type server struct {
	name  atomic.Pointer[string]
	port  uint16
	close []io.Closer
}

func (p *peer) serve(at Port) error {
	name := at.Name
	at.Name = ""
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.served[at]; s != nil {
		s.name.Store(&name)
		return nil
	}
	s := &server{port: at.Port}
	s.name.Store(&name)
	var err error
	switch at.Proto {
	case "tcp":
		err = s.listenTCP()
	case "udp":
		err = errors.Join(s.listenUDP("udp4"), s.listenUDP("udp6"))
	default:
		err = fmt.Errorf("protocol %q: allowed are tcp, udp", at.Proto)
	}
	if err != nil {
		s.end()
		return fmt.Errorf("serve %d/%s: %w", at.Port, at.Proto, err)
	}
	p.served[at] = s
	return nil
}

func (p *peer) stop(at Port) error {
	at.Name = ""
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.served[at]; s != nil {
		s.end()
		delete(p.served, at)
	}
	return nil
}

func (s *server) end() {
	for _, c := range s.close {
		_ = c.Close()
	}
}

// answer is what is sent back to a question.
func (s *server) answer(question string, source, to netip.Addr) []byte {
	token, _, _ := strings.Cut(strings.TrimPrefix(question, QuestionMark), " ")
	what, err := json.Marshal(seen{Name: *s.name.Load(), Port: s.port, Source: source.Unmap(), To: to.Unmap()})
	if err != nil {
		what = []byte("{}")
	}
	return []byte(AnswerMark + token + " " + string(what) + "\n")
}

func (s *server) listenTCP() error {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", s.port))
	if err != nil {
		return err
	}
	s.close = append(s.close, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.talk(c.(*net.TCPConn))
		}
	}()
	return nil
}

// talk answers questions on a connection until the client ends it.
func (s *server) talk(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	source := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	to := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if n, ok := strings.CutPrefix(line, transferMark); ok {
			line = receive(r, strings.TrimSpace(n)) + "\n"
			if _, err := io.WriteString(c, line); err != nil {
				return
			}
			continue
		}
		if _, err := c.Write(s.answer(strings.TrimSpace(line), source, to)); err != nil {
			return
		}
	}
}

// transferMark begins the line that says how many bytes follow.
const transferMark = "transfer "

// receive reads so many bytes and returns their checksum.
func receive(r io.Reader, count string) string {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err.Error()
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, r, n); err != nil {
		return err.Error()
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// maxDatagram is the most that a datagram can have, in bytes.
const maxDatagram = 1 << 16

// listenUDP answers every datagram from the address that it was sent to.
func (s *server) listenUDP(network string) error {
	pc, err := net.ListenPacket(network, fmt.Sprintf(":%d", s.port))
	if err != nil {
		if network == "udp6" && errors.Is(err, unix.EAFNOSUPPORT) {
			return nil // a kernel without IPv6
		}
		return err
	}
	c := pc.(*net.UDPConn)
	s.close = append(s.close, c)
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if network == "udp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if err := control(c, func(fd int) error { return unix.SetsockoptInt(fd, level, option, 1) }); err != nil {
		return err
	}
	go s.answerDatagrams(c)
	return nil
}

func (s *server) answerDatagrams(c *net.UDPConn) {
	b, oob := make([]byte, maxDatagram), make([]byte, 256)
	for {
		n, m, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		to, info := destination(oob[:m])
		_, _, _ = c.WriteMsgUDPAddrPort(s.answer(string(b[:n]), from.Addr(), to), info, from)
	}
}

// destination reads where a datagram was sent to, and returns the control message that sends from there.
func destination(oob []byte) (to netip.Addr, info []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return to, nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			var a [4]byte
			copy(a[:], m.Data[8:12])
			return netip.AddrFrom4(a), unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
			var a [16]byte
			copy(a[:], m.Data[:16])
			return netip.AddrFrom16(a), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a})
		}
	}
	return to, nil
}
