//go:build linux

package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"towtank/datapath"
	"towtank/internal/checksum"
)

// Announce implements datapath.Host.
func (h *Host) Announce(list []datapath.Announcement, done func(error)) {
	h.do(func() {
		var errs []error
		for _, a := range list {
			if err := h.within(a.Netns, func() error { return announce(a.IP, a.Link) }); err != nil {
				errs = append(errs, fmt.Errorf("announce %s on %s: %w", a.IP, a.Link, err))
			}
		}
		h.cfg.Post(func() { done(errors.Join(errs...)) })
	})
}

// announce sends one frame from the namespace of the thread.
func announce(ip netip.Addr, link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a := l.Attrs()
	if len(a.HardwareAddr) != 6 {
		return fmt.Errorf("hardware address %q: want six bytes", a.HardwareAddr)
	}
	mac := [6]byte(a.HardwareAddr)
	var frame []byte
	proto := uint16(unix.ETH_P_ARP)
	if ip.Is4() {
		frame = gratuitousARP(mac, ip)
	} else {
		frame, proto = neighbourAdvertisement(mac, ip), unix.ETH_P_IPV6
	}
	// Protocol 0: the socket receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: a.Index, Halen: 6}
	copy(to.Addr[:], frame[:6])
	return unix.Sendto(fd, frame, 0, to)
}

// gratuitousARP is an ARP request for the sender's own address, to everybody (RFC 5227, section 3).
func gratuitousARP(mac [6]byte, ip netip.Addr) []byte {
	a := ip.As4()
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac[:]...)
	b = append(b, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
	b = append(append(b, mac[:]...), a[:]...)
	return append(append(b, 0, 0, 0, 0, 0, 0), a[:]...)
}

// neighbourAdvertisement is unsolicited, to all nodes, with the override flag (RFC 4861, section 7.2.6).
func neighbourAdvertisement(mac [6]byte, ip netip.Addr) []byte {
	src, dst := ip.As16(), netip.IPv6LinkLocalAllNodes().As16()
	body := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, src[:]...)
	body = append(append(body, 2, 1), mac[:]...)
	binary.BigEndian.PutUint16(body[2:], checksum.Pseudo(ip, netip.AddrFrom16(dst), 58, len(body)).Add(body).Fold())
	b := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac[:]...)
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), 58, 255)
	b = append(append(b, src[:]...), dst[:]...)
	return append(b, body...)
}
