package ovsdummy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"towtank/datapath"
	"towtank/datapath/ovsdb"
	"towtank/sim/packet"
)

// port is a port in OVS. Frames that leave by one of type dummy come out of its socket.
type port struct {
	name   string
	number uint32
	row    *ovsdb.Port
	path   string // of the socket; "" for a tunnel
	fd     int
	buf    []byte
}

// syncPorts brings the ports of OVS in line with the model's: those that have a number.
func (s *Switch) syncPorts() {
	if s.down {
		return
	}
	want := map[string]*port{}
	for _, st := range s.model.Ports() {
		if st.Port == nil || st.OFPort == 0 {
			continue
		}
		spec := ovsdb.PortSpec{Name: st.Name, Type: "dummy", OFPortRequest: uint16(st.OFPort), Tag: st.Port.Tag()}
		p := &port{name: st.Name, number: st.OFPort, fd: -1}
		if st.IsTunnel() {
			spec.Type, spec.Options = st.Type, st.Port.Options()
		} else if old := s.ports[st.Name]; old != nil && old.number == st.OFPort && old.path != "" {
			p.path = old.path
		} else {
			s.nextID++
			p.path = s.server.Socket(fmt.Sprint("p", s.nextID))
		}
		if p.path != "" {
			spec.Options = map[string]string{"pstream": "punix:" + p.path}
		}
		var err error
		if p.row, err = ovsdb.NewPort(spec); err != nil {
			s.fault("port "+st.Name, err)
			continue
		}
		want[st.Name] = p
	}
	var gone, made []datapath.Op
	for _, name := range slices.Sorted(maps.Keys(s.ports)) {
		if p := s.ports[name]; name != physical && (want[name] == nil || !datapath.Equal(want[name].row, p.row)) {
			gone = append(gone, datapath.Op{Old: p.row})
			p.close()
			delete(s.ports, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if s.ports[name] == nil {
			made = append(made, datapath.Op{New: want[name].row})
		}
	}
	if len(gone)+len(made) == 0 {
		return
	}
	s.writePorts(gone)
	s.writePorts(made)
	for _, op := range made {
		p := want[op.New.Key().Name]
		s.ports[p.name] = p
		s.fault("port "+p.name, p.open())
	}
	s.idle()
}

// writePorts writes to the database, and returns when vswitchd has taken it in.
func (s *Switch) writePorts(ops []datapath.Op) {
	if len(ops) == 0 {
		return
	}
	s.wait("ports", func(done func()) {
		s.of.Apply(datapath.StagePortAdd, ops, func(res []datapath.OpResult) {
			for i, r := range res {
				s.fault(ops[i].String(), r.Err)
			}
			s.of.SyncPorts(func(err error) {
				s.fault("ports", err)
				done()
			})
		})
	})
}

// open connects to the socket of the port, which OVS listens on. It tries until the socket is there: nothing
// tells of that.
func (p *port) open() error {
	p.buf = nil
	if p.path == "" {
		return nil
	}
	for end := time.Now().Add(waitAtMost); ; time.Sleep(time.Millisecond) {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: p.path}); err == nil {
			p.fd = fd
			return syscall.SetNonblock(fd, true)
		}
		syscall.Close(fd)
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", p.path, err)
		}
	}
}

func (p *port) close() {
	if p.fd >= 0 {
		syscall.Close(p.fd)
		p.fd = -1
	}
}

// frames returns what came out of the port.
func (p *port) frames() (out [][]byte, err error) {
	if p.fd < 0 {
		return nil, nil
	}
	var chunk [64 << 10]byte
	for {
		n, err := syscall.Read(p.fd, chunk[:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errors.New("OVS closed the port's socket")
		}
		p.buf = append(p.buf, chunk[:n]...)
	}
	for len(p.buf) >= 2 {
		n := int(binary.BigEndian.Uint16(p.buf))
		if len(p.buf) < 2+n {
			break
		}
		out = append(out, slices.Clone(p.buf[2:2+n]))
		p.buf = p.buf[2+n:]
	}
	return out, nil
}

// The underlay: a network with one neighbour, by which everything else is reached.
var (
	underlayMAC  = packet.MAC{2, 0, 0, 0, 0, 1}
	neighbourMAC = packet.MAC{2, 0, 0, 0, 0, 2}
	underlayIP4  = netip.MustParseAddr("192.0.2.1")
	underlayIP6  = netip.MustParseAddr("2001:db8::1")
	neighbourIP4 = netip.MustParseAddr("192.0.2.254")
	neighbourIP6 = netip.MustParseAddr("2001:db8::fe")
)

// neighbourLife is how long OVS keeps a tunnel neighbour that is not used (tnl-neigh-cache.c).
const neighbourLife = 15 * time.Minute

// addPhysical makes the port of the underlay that leads out, or connects to it again.
func (s *Switch) addPhysical() error {
	p := s.ports[physical]
	if p == nil {
		p = &port{name: physical, fd: -1, path: s.server.Socket("phy")}
		if err := s.server.AddPort(underlay, physical, "dummy", map[string]string{"pstream": "punix:" + p.path}); err != nil {
			return err
		}
		s.ports[physical] = p
		return p.open()
	}
	return nil // the caller opens all
}

// answerTo has the underlay take tunnel packets to an address; it has one of each family at a time.
func (s *Switch) answerTo(a netip.Addr) {
	i, command, bits := 0, "netdev-dummy/ip4addr", "/32"
	if a.Is6() {
		i, command, bits = 1, "netdev-dummy/ip6addr", "/128"
	}
	if s.local[i] != a {
		s.local[i] = a
		s.call(command, underlay, a.String()+bits)
		s.idle()
	}
}

// setUnderlay gives the underlay addresses, routes and neighbours.
func (s *Switch) setUnderlay() error {
	s.local, s.refreshed = [2]netip.Addr{}, s.cfg.Now()
	for _, c := range [][]string{
		{"netdev-dummy/ip4addr", underlay, underlayIP4.String() + "/24"},
		{"netdev-dummy/ip6addr", underlay, underlayIP6.String() + "/64"},
		{"ovs/route/add", "0.0.0.0/0", underlay, neighbourIP4.String()},
		{"ovs/route/add", "::/0", underlay, neighbourIP6.String()},
		{"tnl/neigh/set", underlay, neighbourIP4.String(), neighbourMAC.String()},
		{"tnl/neigh/set", underlay, neighbourIP6.String(), neighbourMAC.String()},
	} {
		if _, err := s.server.Call(c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}
