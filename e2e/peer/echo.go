//go:build linux

package peer

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"towtank/internal/checksum"
)

// Types of ICMP messages (RFC 792, RFC 4443).
const (
	echoRequest4, echoReply4, unreachable4 = 8, 0, 3
	echoRequest6, echoReply6, unreachable6 = 128, 129, 1
)

// echo sends one echo request. The kernel answers, so that nothing is known of what it saw.
func echo(f *Flow) (Result, error) {
	network, request, reply, unreachable := "ip4:icmp", byte(echoRequest4), byte(echoReply4), byte(unreachable4)
	if f.To.Is6() {
		network, request, reply, unreachable = "ip6:ipv6-icmp", echoRequest6, echoReply6, unreachable6
	}
	pc, err := net.ListenPacket(network, "")
	if err != nil {
		return Result{}, fmt.Errorf("socket for echo requests: %w", err)
	}
	defer func() { _ = pc.Close() }()
	c := pc.(*net.IPConn)
	if err := control(c, func(fd int) error { return discover(fd, f) }); err != nil {
		return Result{}, err
	}
	m := []byte{request, 0, 0, 0, byte(f.SPort >> 8), byte(f.SPort), 0, 1}
	m = append(m, padded(f, QuestionMark+f.Token+" ")...)
	if !f.To.Is6() { // for ICMPv6 the kernel fills it in
		binary.BigEndian.PutUint16(m[2:], checksum.Sum(0).Add(m).Fold())
	}
	_ = c.SetDeadline(time.Now().Add(AnswerWithin))
	if _, err := c.WriteTo(m, &net.IPAddr{IP: f.To.AsSlice()}); err != nil {
		return judge(err)
	}
	b := make([]byte, maxDatagram)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return judge(err)
		}
		if ip, ok := from.(*net.IPAddr); !ok || !ip.IP.Equal(f.To.AsSlice()) || n < 8 {
			continue
		}
		switch {
		case b[0] == reply && binary.BigEndian.Uint16(b[4:]) == f.SPort:
			return Result{Verdict: OK, To: f.To}, nil
		case b[0] == unreachable:
			return Result{Verdict: Reject, Note: fmt.Sprintf("unreachable, code %d", b[1])}, nil
		}
	}
}

// transmit sends a frame by a link.
func transmit(link string, frame []byte) error {
	l, err := net.InterfaceByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket for frames: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Index}); err != nil {
		return fmt.Errorf("send a frame by %s: %w", link, err)
	}
	return nil
}
