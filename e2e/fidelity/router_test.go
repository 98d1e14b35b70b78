//go:build linux

package fidelity

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"towtank/sim/host"
	"towtank/sim/packet"
)

// A router is a host with a few links, behind each of which somebody sends and listens: once the model, once a
// namespace of this machine.
//
//	p1 ─── r1 ┐
//	p2 ─── r2 ├ router: routes, rules, iptables, ipsets
//	p3 ─── r3 ┘
//
// do runs a command; its error says that it was refused. send has a frame arrive at the i-th link, and returns what
// leaves the router because of it.

// left is a frame that left by a link.
type left struct {
	link  int
	frame []byte
}

const routerLinks = 3

func linkName(i int) string { return fmt.Sprint("r", i+1) }

func routerMAC(i int) packet.MAC { return packet.MAC{2, 0, 0, 0, 1, byte(i + 1)} }

func peerMAC(i int) packet.MAC { return packet.MAC{2, 0, 0, 0, 2, byte(i + 1)} }

// modelRouter is the router of the simulator.
type modelRouter struct {
	n   *host.Netns
	out []left
	err error
}

func newModelRouter() *modelRouter {
	m := &modelRouter{}
	now := time.Now() // stands still: nothing of one comparison is over before its end
	m.n = host.New(host.Config{Name: "router", Now: func() time.Time { return now }})
	for i := range routerLinks {
		m.n.AddLink(linkName(i), routerMAC(i), 1500, func(p *packet.Packet) {
			b, err := packet.Marshal(p)
			m.err = errors.Join(m.err, err)
			m.out = append(m.out, left{i, b})
		})
	}
	return m
}

func (m *modelRouter) do(command string) error {
	_, err := m.n.Exec(command)
	return err
}

func (m *modelRouter) send(i int, frame []byte) []left {
	p, _, err := packet.Unmarshal(frame)
	m.out, m.err = nil, err
	if err == nil {
		m.n.Receive(linkName(i), p)
	}
	return m.out
}

// kernelRouter is a namespace of this machine, with a shell in it, and another one with the far ends of its links.
type kernelRouter struct {
	name    string
	shell   *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	sockets [routerLinks]int
}

// newKernelRouter makes the namespaces; close removes them.
func newKernelRouter(t *testing.T) *kernelRouter {
	t.Helper()
	k := &kernelRouter{name: fmt.Sprintf("ttf%d", os.Getpid())}
	for i := range k.sockets {
		k.sockets[i] = -1
	}
	setup := []string{"ip netns add " + k.name, "ip netns add " + k.far()}
	for i := range routerLinks {
		setup = append(setup, fmt.Sprintf("ip -n %s link add %s address %s type veth peer name p%d netns %s address %s", k.name, linkName(i), routerMAC(i), i+1, k.far(), peerMAC(i)),
			fmt.Sprintf("ip netns exec %s ethtool -K %s tx off", k.name, linkName(i)))
	}
	// Nobody speaks by himself, errors are not limited, and sequence numbers are nobody's business.
	setup = append(setup,
		"ip netns exec "+k.far()+" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
		"ip netns exec "+k.name+" sysctl -qw net.ipv6.conf.default.router_solicitations=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0 net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0 net.netfilter.nf_conntrack_tcp_be_liberal=1")
	for i := range routerLinks {
		setup = append(setup, fmt.Sprintf("ip -n %s link set p%d up arp off", k.far(), i+1), fmt.Sprintf("ip netns exec %s sysctl -qw net.ipv6.conf.%s.addr_gen_mode=1 net.ipv4.neigh.%s.proxy_delay=0 net.ipv6.neigh.%s.proxy_delay=0", k.name, linkName(i), linkName(i), linkName(i)),
			fmt.Sprintf("ip -n %s link set %s up", k.name, linkName(i)))
	}
	setup = append(setup, "ip -n "+k.name+" link set lo up")
	for _, c := range setup {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			k.close()
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	if err := k.open(); err != nil {
		k.close()
		t.Fatal(err)
	}
	return k
}

// far is the namespace of the far ends.
func (k *kernelRouter) far() string { return k.name + "p" }

// open starts the shell, and opens the sockets at the far ends.
func (k *kernelRouter) open() error {
	k.shell = exec.Command("ip", "netns", "exec", k.name, "sh")
	k.shell.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var err error
	if k.in, err = k.shell.StdinPipe(); err != nil {
		return err
	}
	out, err := k.shell.StdoutPipe()
	if err != nil {
		return err
	}
	k.out = bufio.NewReader(out)
	if err := k.shell.Start(); err != nil {
		return err
	}
	runtime.LockOSThread()
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	far, err := netns.GetFromName(k.far())
	if err != nil {
		return err
	}
	defer far.Close()
	if err := netns.Set(far); err != nil {
		return err
	}
	for i := range k.sockets {
		if k.sockets[i], err = packetSocket(fmt.Sprint("p", i+1)); err != nil {
			break
		}
	}
	if back := netns.Set(here); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// packetSocket opens a socket for all frames of a link of the thread's namespace.
func packetSocket(link string) (int, error) {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	ifr, err := unix.NewIfreq(link)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(ifr.Uint32())})
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("packet socket on %s: %w", link, err)
	}
	return fd, nil
}

func (k *kernelRouter) close() {
	for _, fd := range k.sockets {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if k.in != nil {
		k.in.Close()
		_ = k.shell.Wait() // the shell ends with its input
	}
	for _, n := range []string{k.name, k.far()} {
		_ = exec.Command("ip", "netns", "del", n).Run() // it is not there if it was never made
	}
}

func (k *kernelRouter) do(command string) error {
	const end = "=====END"
	line, rest, restore := strings.Cut(command, "\n")
	if restore {
		line += " <<'" + end + "X'\n" + rest + "\n" + end + "X\n"
	} else {
		line += " </dev/null"
	}
	if _, err := fmt.Fprintf(k.in, "{ %s\n} 2>&1; s=$?; echo; echo \"%s $s\"\n", line, end); err != nil {
		return err
	}
	var said []string
	for {
		l, err := k.out.ReadString('\n')
		if err != nil {
			return err
		}
		if status, ok := strings.CutPrefix(strings.TrimSpace(l), end+" "); ok {
			if status != "0" {
				return fmt.Errorf("status %s: %s", status, strings.Join(said, " "))
			}
			return nil
		}
		said = append(said, strings.TrimSpace(l))
	}
}

// quiet is how long nothing has to come out to be all that comes: the kernel forwards before the sender goes on, so
// this is for its timers and for a busy machine.
const quiet = 4 * time.Millisecond

func (k *kernelRouter) send(i int, frame []byte) (out []left) {
	if _, err := unix.Write(k.sockets[i], frame); err != nil {
		return []left{{i, []byte(err.Error())}}
	}
	for last := time.Now(); time.Since(last) < quiet; {
		got := false
		for l, fd := range k.sockets {
			for {
				var b [2048]byte
				n, from, err := unix.Recvfrom(fd, b[:], 0)
				if err != nil {
					break
				}
				if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype == unix.PACKET_OUTGOING {
					continue // our own
				}
				got = true
				out = append(out, left{l, bytes.Clone(b[:n])})
			}
		}
		if got {
			last = time.Now()
		} else {
			time.Sleep(200 * time.Microsecond)
		}
	}
	return out
}
