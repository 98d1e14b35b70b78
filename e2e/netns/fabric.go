//go:build linux

package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"towtank/e2e/peer"
)

// fabric is the nodes' subnet: a bridge of the kernel in a namespace of its own, with a port for each machine.
// Who reaches whom, and how much of it is lost, is one table of nft's bridge family, replaced as a whole.
type fabric struct {
	space *space
	sniff int // socket that sees every frame; -1: none
	quit  chan struct{}
	ended chan struct{} // closed when nobody reads from sniff any more

	mu     sync.Mutex
	ports  map[int]string    // machine by index of its port
	names  map[string]string // port by machine
	groups [][]string
	loss   map[[2]string]int
	frames map[string]*way // of the tokens that are watched
	hear   []func(from string, frame []byte)
	synced uint64 // the last frame of sync that was seen
	asked  uint64
	tick   *sync.Cond
}

// way is where the packets of a token were seen last.
type way struct{ question, answer string }

const fabricBridge = "br0"

func newFabric(name string) (*fabric, error) {
	s, err := newSpace(name)
	if err != nil {
		return nil, err
	}
	f := &fabric{space: s, sniff: -1, quit: make(chan struct{}), ended: make(chan struct{}), ports: map[int]string{}, names: map[string]string{}, loss: map[[2]string]int{}, frames: map[string]*way{}}
	f.tick = sync.NewCond(&f.mu)
	err = s.do(func() error {
		// The fabric is a wire: it has no address of its own, and does not learn for longer than a test lives.
		return errors.Join(
			command("", "ip", "link", "add", fabricBridge, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"),
			sysctl("net/ipv6/conf/all/disable_ipv6", "1"),
			command("", "ip", "link", "set", fabricBridge, "mtu", "1500", "up"),
			f.openSniffer(),
		)
	})
	if err != nil {
		close(f.ended)
		f.close()
		return nil, fmt.Errorf("fabric: %w", err)
	}
	go f.watch()
	return f, nil
}

// plug gives a machine a device on the fabric, with that name and address in its namespace.
func (f *fabric) plug(machine string, s *space, device, mac string) error {
	f.mu.Lock()
	port := fmt.Sprintf("p%d", len(f.names)+1)
	if old := f.names[machine]; old != "" {
		port = old // the machine boots again
	}
	f.mu.Unlock()
	_, _ = f.space.run("ip", "link", "del", port) // that of the last boot may not be gone yet
	_, err := f.space.run("ip", "link", "add", port, "type", "veth", "peer", "name", device, "address", mac, "netns", s.name)
	if err != nil {
		return err
	}
	if _, err := f.space.run("ip", "link", "set", port, "master", fabricBridge, "up"); err != nil {
		return err
	}
	var index int
	err = f.space.do(func() error {
		l, err := net.InterfaceByName(port)
		if err == nil {
			index = l.Index
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("port %s: %w", port, err)
	}
	f.mu.Lock()
	f.ports[index], f.names[machine] = machine, port
	f.mu.Unlock()
	return nil
}

// setUp cuts or connects the link of a machine.
func (f *fabric) setUp(machine string, up bool) error {
	f.mu.Lock()
	port := f.names[machine]
	f.mu.Unlock()
	state := "down"
	if up {
		state = "up"
	}
	_, err := f.space.run("ip", "link", "set", port, state)
	return err
}

// partition says who is cut off from whom: members of different groups are. nil: nobody.
func (f *fabric) partition(groups [][]string) error {
	f.mu.Lock()
	f.groups = groups
	f.mu.Unlock()
	return f.filter()
}

func (f *fabric) setLoss(a, b string, percent int) error {
	f.mu.Lock()
	for _, m := range []string{a, b} {
		if f.names[m] == "" {
			f.mu.Unlock()
			return fmt.Errorf("loss: %s is not on the fabric", m)
		}
	}
	f.loss[[2]string{a, b}] = percent
	f.mu.Unlock()
	return f.filter()
}

// lossless ends all loss.
func (f *fabric) lossless() error {
	f.mu.Lock()
	clear(f.loss)
	f.mu.Unlock()
	return f.filter()
}

// filter writes the table anew.
func (f *fabric) filter() error {
	f.mu.Lock()
	var b strings.Builder
	b.WriteString("table bridge towtank\ndelete table bridge towtank\ntable bridge towtank {\nchain forward {\ntype filter hook forward priority 0; policy accept;\n")
	rule := func(a, b string, what string) string {
		return fmt.Sprintf("iifname %q oifname %q %s\niifname %q oifname %q %s\n", f.names[a], f.names[b], what, f.names[b], f.names[a], what)
	}
	for i, g := range f.groups {
		for _, other := range f.groups[i+1:] {
			for _, x := range g {
				for _, y := range other {
					b.WriteString(rule(x, y, "drop"))
				}
			}
		}
	}
	for _, pair := range slices.SortedFunc(maps.Keys(f.loss), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if p := f.loss[pair]; p > 0 {
			b.WriteString(rule(pair[0], pair[1], fmt.Sprintf("numgen random mod 100 < %d drop", p)))
		}
	}
	b.WriteString("}\n}\n")
	f.mu.Unlock()
	return f.space.feed(b.String(), "nft", "-f", "-")
}

// openSniffer opens the socket that sees what machines send. It runs inside the fabric's namespace.
func (f *fabric) openSniffer() (err error) {
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	f.sniff, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return fmt.Errorf("socket for frames: %w", err)
	}
	// A wait ends now and then, so that it is noticed when it is no use any more.
	return unix.SetsockoptTimeval(f.sniff, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})
}

// watch notes who sends the packets of the tokens that are watched.
func (f *fabric) watch() {
	defer close(f.ended)
	b := make([]byte, 1<<16)
	for {
		select {
		case <-f.quit:
			return
		default:
		}
		n, from, err := unix.Recvfrom(f.sniff, b, 0)
		if err != nil {
			continue // nothing came for a while, or a device went down
		}
		l, ok := from.(*unix.SockaddrLinklayer)
		if !ok || l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f.saw(l.Ifindex, b[:n])
	}
}

func (f *fabric) saw(index int, frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	machine := f.ports[index]
	if machine == "" {
		if len(frame) >= syncLength && binary.BigEndian.Uint16(frame[12:]) == syncType {
			f.synced = max(f.synced, binary.BigEndian.Uint64(frame[14:]))
			f.tick.Broadcast()
		}
		return
	}
	for _, hear := range f.hear {
		hear(machine, frame)
	}
	if len(f.frames) == 0 {
		return
	}
	if at := bytes.Index(frame, []byte(peer.QuestionMark)); at >= 0 {
		if w := f.frames[token(frame[at+len(peer.QuestionMark):])]; w != nil {
			if echoed(frame, at) {
				w.answer = machine
			} else {
				w.question = machine
			}
		}
	}
	if at := bytes.Index(frame, []byte(peer.AnswerMark)); at >= 0 {
		if w := f.frames[token(frame[at+len(peer.AnswerMark):])]; w != nil {
			w.answer = machine
		}
	}
}

// The frames that sync sends on the namespace's own loopback: a type for experiments (IEEE 802) and a number.
const (
	syncType   = 0x88b5
	syncLength = 14 + 8
)

// sync returns when every frame that passed before has been seen.
func (f *fabric) sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	mine := f.asked
	b := make([]byte, 60)
	binary.BigEndian.PutUint16(b[12:], syncType)
	binary.BigEndian.PutUint64(b[14:], mine)
	if err := unix.Sendto(f.sniff, b, 0, &unix.SockaddrLinklayer{Ifindex: 1}); err != nil {
		return fmt.Errorf("fabric: %w", err)
	}
	for f.synced < mine {
		f.tick.Wait()
	}
	return nil
}

// echoed reports whether what stands before a question is the header of an echo reply: the kernel answers
// with what it was sent.
func echoed(frame []byte, at int) bool {
	const icmp, ip4, ip6 = 8, 20, 40 // bytes of the headers
	if at < icmp+ip6 {
		return false
	}
	kind := frame[at-icmp]
	h4, h6 := frame[at-icmp-ip4:], frame[at-icmp-ip6:]
	return h4[0] == 0x45 && h4[9] == unix.IPPROTO_ICMP && kind == 0 || h6[0]>>4 == 6 && h6[6] == unix.IPPROTO_ICMPV6 && kind == 129
}

// token reads the token that b begins with.
func token(b []byte) string {
	end := bytes.IndexFunc(b, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') })
	if end < 0 {
		end = len(b)
	}
	return string(b[:end])
}

// listen has every frame that a machine sends handed over. Whoever hears it must not call the fabric.
func (f *fabric) listen(hear func(from string, frame []byte)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hear = append(f.hear, hear)
}

// follow begins to watch a token; the returned function ends that and says what was seen until then.
func (f *fabric) follow(token string) func() way {
	w := &way{}
	f.mu.Lock()
	f.frames[token] = w
	f.mu.Unlock()
	return func() way {
		_ = f.sync() // without it the last frame may be missing
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.frames, token)
		return *w
	}
}

func (f *fabric) close() {
	close(f.quit)
	<-f.ended // else it would read from whatever gets the number of the socket next
	if f.sniff >= 0 {
		_ = unix.Close(f.sniff)
	}
	f.space.close()
}
