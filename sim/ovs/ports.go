package ovs

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/datapath/ovsdb"
	"towtank/sim/packet"
)

// PortState is a port of the bridge. The switch owns it; callers must not change it.
type PortState struct {
	Name   string
	OFPort uint32 // 0: none (yet)
	Type   string
	Up     bool
	Port   *ovsdb.Port // nil for the local port
	MAC    packet.MAC
	late   bool
	absent bool // its network device does not exist
}

// IsTunnel reports whether frames that leave by the port are encapsulated.
func (p *PortState) IsTunnel() bool {
	switch p.Type {
	case "geneve", "vxlan", "gre", "stt":
		return true
	}
	return false
}

// maxAutoPort is the largest port number that OVS gives by itself.
const maxAutoPort = 32767

// ApplyPorts puts and deletes ports in the database. Port numbers are given at once: the requested
// one if it is free, else the lowest free one from 1, so that a number that was given up is used
// again by the next port.
func (s *Switch) ApplyPorts(ops []datapath.Op) []datapath.OpResult {
	s.Tick()
	res := make([]datapath.OpResult, len(ops))
	for i, op := range ops {
		if err := s.applyPort(op); err != nil {
			res[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: %w", op.Key(), err)}
		}
	}
	return res
}

func (s *Switch) applyPort(op datapath.Op) error {
	name := op.Key().Name
	if name == s.cfg.Name {
		return errors.New("the local port cannot be changed")
	}
	st := s.ports[name]
	if op.Delete() {
		if st == nil {
			return nil
		}
		s.unnumber(st)
		delete(s.ports, name)
		return nil
	}
	p, ok := op.New.(*ovsdb.Port)
	if !ok {
		return fmt.Errorf("not a port but %T", op.New)
	}
	if st != nil && (st.Type != p.Type() || st.OFPort != 0 && p.OFPortRequest() != 0 && uint32(p.OFPortRequest()) != st.OFPort) {
		s.unnumber(st) // the interface is made anew
	}
	if st == nil {
		st = &PortState{Name: name, Up: true, late: s.cfg.Late != nil && s.cfg.Late(name)}
		s.ports[name] = st
	}
	st.Port, st.Type = p, p.Type()
	if m := p.MAC(); m != "" {
		mac, err := openflow.ParseMAC(m)
		if err != nil {
			return err
		}
		st.MAC = packet.MAC(mac)
	}
	st.absent = st.Type == "" && s.cfg.Device != nil && !s.cfg.Device(name)
	s.number(st)
	return nil
}

// number gives the port its number, if it can have one now, and tells.
func (s *Switch) number(st *PortState) {
	if st.OFPort != 0 || st.late || st.absent || s.stopped {
		return
	}
	n := uint32(st.Port.OFPortRequest())
	if n == 0 || s.byNumber[n] != nil {
		for n = 1; n <= maxAutoPort && s.byNumber[n] != nil; n++ {
		}
		if n > maxAutoPort {
			return
		}
	}
	st.OFPort = n
	s.byNumber[n] = st
	s.portChanged(st)
}

func (s *Switch) unnumber(st *PortState) {
	if st.OFPort == 0 {
		return
	}
	delete(s.byNumber, st.OFPort)
	for k, m := range s.macs {
		if m.port == st.OFPort {
			delete(s.macs, k)
		}
	}
	st.OFPort = 0
	s.portChanged(st)
}

func (s *Switch) portChanged(st *PortState) {
	if s.cfg.PortChanged != nil && !s.stopped {
		s.cfg.PortChanged(datapath.PortEvent{Name: st.Name, OFPort: st.OFPort, Up: st.Up && st.OFPort != 0})
	}
}

func (s *Switch) numberPorts() {
	for _, name := range slices.Sorted(maps.Keys(s.ports)) {
		if st := s.ports[name]; st.Port != nil {
			st.absent = st.Type == "" && s.cfg.Device != nil && !s.cfg.Device(name)
			if st.absent {
				s.unnumber(st)
			}
			s.number(st)
		}
	}
}

// ReleaseLate ends the fault of late ports: they get their numbers.
func (s *Switch) ReleaseLate() {
	for _, st := range s.ports {
		st.late = false
	}
	s.numberPorts()
}

// DeviceChanged tells that a network device appeared on the host or went.
func (s *Switch) DeviceChanged(name string) {
	if st := s.ports[name]; st != nil && st.Port != nil {
		s.numberPorts()
	}
}

// SetPortUp sets the link state of a port.
func (s *Switch) SetPortUp(name string, up bool) {
	if st := s.ports[name]; st != nil && st.Up != up {
		st.Up = up
		s.portChanged(st)
	}
}

// PortByName returns a port, nil if there is none.
func (s *Switch) PortByName(name string) *PortState { return s.ports[name] }

// PortByNumber returns the port with the number, nil if there is none.
func (s *Switch) PortByNumber(n uint32) *PortState { return s.byNumber[n] }

// Ports returns all ports sorted by name.
func (s *Switch) Ports() []*PortState {
	list := make([]*PortState, 0, len(s.ports))
	for _, name := range slices.Sorted(maps.Keys(s.ports)) {
		list = append(list, s.ports[name])
	}
	return list
}

// tunnelEnds returns where a frame that leaves by a tunnel port goes, and from where: options of the
// port, or what the flow set.
func (s *Switch) tunnelEnds(st *PortState, k *key) (dst, src netip.Addr, id uint64) {
	id = k[wTunID]
	if v := st.Port.Option("key"); v != "" && v != "flow" {
		id, _ = strconv.ParseUint(v, 0, 64)
	}
	return optionAddr(st.Port.Option("remote_ip"), uint32(k[wTunIPv4]), k.val(openflow.TunIPv6Dst)),
		optionAddr(st.Port.Option("local_ip"), uint32(k[wTunIPv4]>>32), k.val(openflow.TunIPv6Src)), id
}

func optionAddr(option string, v4 uint32, v6 openflow.Value) netip.Addr {
	if a, err := netip.ParseAddr(option); err == nil {
		return a
	}
	switch {
	case v4 != 0:
		return addr4(v4)
	case !v6.IsZero():
		return v6.Addr6()
	}
	return netip.Addr{}
}
