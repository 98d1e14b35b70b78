package fabric

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"towtank/sim/host"
	"towtank/sim/packet"
)

// Config is what a fabric needs from the world.
type Config struct {
	// Rand decides which frames are lost; nil is a fixed seed.
	Rand *rand.Rand
	// Queue must be the one that the attached namespaces have; nil is one of its own.
	Queue *packet.Queue
	// OnFrame, if set, sees every frame that a port sends, before partitions and losses: by it one
	// knows from which node a packet left. The frame must not be kept or changed.
	OnFrame func(from string, p *packet.Packet)
	// MTU of the links that Attach makes, in bytes; 0 is 1500.
	MTU int
}

// Fabric is the network. It is not safe for concurrent use.
type Fabric struct {
	cfg    Config
	rand   *rand.Rand
	q      *packet.Queue
	tracer packet.Tracer
	ports  []*port // in the order of Attach
	byName map[string]*port
	fdb    map[fdbKey]*port
	group  map[string]int // partition of a port; absent: cut from nobody
	loss   map[[2]string]int
}

type port struct {
	name string
	vlan uint16 // access VLAN; 0: trunk with native VLAN 0
	ns   *host.Netns
	link string
	down bool
}

type fdbKey struct {
	vlan uint16
	mac  packet.MAC
}

// New returns a fabric without ports.
func New(cfg Config) *Fabric {
	f := &Fabric{cfg: cfg, rand: cfg.Rand, q: cfg.Queue, byName: map[string]*port{}, fdb: map[fdbKey]*port{}, group: map[string]int{}, loss: map[[2]string]int{}}
	if f.rand == nil {
		f.rand = rand.New(rand.NewPCG(3, 4))
	}
	if f.q == nil {
		f.q = &packet.Queue{}
	}
	if f.cfg.MTU == 0 {
		f.cfg.MTU = 1500
	}
	return f
}

// SetTracer sends what happens to frames to t; nil ends it.
func (f *Fabric) SetTracer(t packet.Tracer) { f.tracer = t }

// Attach plugs a link of a namespace into a port. With vlan 0 the port is a trunk: untagged frames are
// the native network's, tagged ones pass; else the port belongs to that VLAN and speaks untagged. The
// link is made if the namespace does not have it.
func (f *Fabric) Attach(name string, vlan uint16, ns *host.Netns, link string) error {
	switch {
	case f.byName[name] != nil:
		return fmt.Errorf("fabric: port %s is taken", name)
	case name == "" || strings.ContainsAny(name, " ,|*"):
		return fmt.Errorf("fabric: port %q: want a name without space, comma, bar and star", name)
	case vlan > 4094:
		return fmt.Errorf("fabric: port %s: VLAN %d: want 0 to 4094", name, vlan)
	}
	p := &port{name: name, vlan: vlan, ns: ns, link: link}
	send := func(fr *packet.Packet) { f.input(p, fr) }
	if ns.Link(link) == nil {
		ns.AddLink(link, packet.MAC{}, f.cfg.MTU, send)
	} else if err := ns.SetTransmit(link, send); err != nil {
		return fmt.Errorf("fabric: port %s: %w", name, err)
	}
	f.ports = append(f.ports, p)
	f.byName[name] = p
	return nil
}

// Detach unplugs a port.
func (f *Fabric) Detach(name string) error {
	p, err := f.port(name)
	if err != nil {
		return err
	}
	f.forget(p)
	f.ports = slices.DeleteFunc(f.ports, func(o *port) bool { return o == p })
	delete(f.byName, name)
	if p.ns.Link(p.link) == nil {
		return nil
	}
	return p.ns.SetTransmit(p.link, nil)
}

// Ports returns the names of the ports in the order in which they were attached.
func (f *Fabric) Ports() []string {
	out := make([]string, len(f.ports))
	for i, p := range f.ports {
		out[i] = p.name
	}
	return out
}

func (f *Fabric) port(name string) (*port, error) {
	if p := f.byName[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("fabric: no port %s (there are %s)", name, strings.Join(f.Ports(), ", "))
}

// forget drops what was learnt at a port.
func (f *Fabric) forget(p *port) {
	for k, o := range f.fdb { // the order does not matter
		if o == p {
			delete(f.fdb, k)
		}
	}
}

// SetDown takes the power from a port's device, or gives it back: it neither sends nor receives, and the
// switch forgets where its addresses were.
func (f *Fabric) SetDown(name string, down bool) error {
	p, err := f.port(name)
	if err != nil {
		return err
	}
	p.down = down
	if down {
		f.forget(p)
	}
	return nil
}

// Partition cuts the groups of ports from each other; it replaces an earlier partition. The name * in
// a group stands for all ports that no group names. A port in no group is cut from nobody.
func (f *Fabric) Partition(groups [][]string) error {
	next := map[string]int{}
	star := -1
	for i, g := range groups {
		for _, name := range g {
			if name == "*" {
				if star >= 0 {
					return fmt.Errorf("fabric: partition: two groups name *")
				}
				star = i
				continue
			}
			if _, err := f.port(name); err != nil {
				return fmt.Errorf("partition: %w", err)
			}
			if j, ok := next[name]; ok && j != i {
				return fmt.Errorf("fabric: partition: %s is in two groups", name)
			}
			next[name] = i
		}
	}
	if star >= 0 {
		for _, p := range f.ports {
			if _, ok := next[p.name]; !ok {
				next[p.name] = star
			}
		}
	}
	f.group = next
	return nil
}

// Heal ends the partition.
func (f *Fabric) Heal() { f.group = map[string]int{} }

// Reaches reports whether frames pass from a to b: both have power and no partition is between them.
func (f *Fabric) Reaches(a, b string) bool {
	p, q := f.byName[a], f.byName[b]
	return p != nil && q != nil && !p.down && !q.down && !f.cut(a, b)
}

func (f *Fabric) cut(a, b string) bool {
	i, ok1 := f.group[a]
	j, ok2 := f.group[b]
	return ok1 && ok2 && i != j
}

func pair(a, b string) [2]string {
	if cmp.Less(b, a) {
		a, b = b, a
	}
	return [2]string{a, b}
}

// Loss loses that share of the frames between two ports, in both directions; 0 ends it.
func (f *Fabric) Loss(a, b string, percent int) error {
	if _, err := f.port(a); err != nil {
		return err
	}
	if _, err := f.port(b); err != nil {
		return err
	}
	if percent < 0 || percent > 100 {
		return fmt.Errorf("fabric: loss between %s and %s: %d%%: want 0 to 100", a, b, percent)
	}
	if percent == 0 {
		delete(f.loss, pair(a, b))
	} else {
		f.loss[pair(a, b)] = percent
	}
	return nil
}

// Lossy reports whether frames are lost anywhere.
func (f *Fabric) Lossy() bool { return len(f.loss) > 0 }

// ClearLoss ends every loss.
func (f *Fabric) ClearLoss() { clear(f.loss) }

// drop records that a frame ends between two ports.
func (f *Fabric) drop(from, to *port, why string) {
	if f.tracer != nil {
		f.tracer.Step(packet.TraceStep{Node: "fabric", Where: from.name + " -> " + to.name, Text: why, Drop: true})
	}
}

// input takes a frame that a port sends; the fabric owns it.
func (f *Fabric) input(from *port, p *packet.Packet) {
	if from.down || f.byName[from.name] != from {
		f.drop(from, from, "no power")
		return
	}
	if f.cfg.OnFrame != nil {
		f.cfg.OnFrame(from.name, p)
	}
	vlan := p.VLAN & 0xfff
	if from.vlan != 0 {
		if vlan != 0 {
			f.drop(from, from, fmt.Sprintf("tagged frame on an access port of VLAN %d", from.vlan))
			return
		}
		vlan = from.vlan
	}
	if !p.EthSrc.IsMulticast() {
		f.fdb[fdbKey{vlan, p.EthSrc}] = from
	}
	if to := f.fdb[fdbKey{vlan, p.EthDst}]; to != nil && !p.EthDst.IsMulticast() {
		if to != from {
			f.output(from, to, vlan, p)
		}
		return
	}
	for _, to := range f.ports {
		if to != from && (to.vlan == 0 || to.vlan == vlan) {
			f.output(from, to, vlan, p)
		}
	}
}

func (f *Fabric) output(from, to *port, vlan uint16, p *packet.Packet) {
	switch {
	case to.down:
		f.drop(from, to, to.name+" has no power")
		return
	case f.cut(from.name, to.name):
		f.drop(from, to, "partition")
		return
	}
	if percent := f.loss[pair(from.name, to.name)]; percent > 0 && f.rand.IntN(100) < percent {
		f.drop(from, to, "lost")
		return
	}
	out := p.Clone()
	out.VLAN = 0
	if to.vlan == 0 && vlan != 0 {
		out.VLAN = vlan | 0x1000
	}
	f.q.Add(func() {
		if !to.down {
			to.ns.Receive(to.link, out)
		}
	})
}

// NativeLink is the link of a router on the native network.
const NativeLink = "native"

// VLANPort is what the name of a router's port on its VLAN ends in.
const VLANPort = "-vlan"

// Network makes the router of a VLAN network: a port named name on the native network with the addresses
// native, and one on the VLAN (name-vlan) with the first address of each prefix. It forwards between
// them, and answers ARP on the native side for the addresses of the VLAN.
func (f *Fabric) Network(name string, prefixes []netip.Prefix, vlan uint16, native []netip.Prefix, cfg host.Config) (*host.Netns, error) {
	if vlan < 1 || vlan > 4094 {
		return nil, fmt.Errorf("network %s: VLAN %d: want 1 to 4094", name, vlan)
	}
	cfg.Name, cfg.Queue = name, f.q
	ns := host.New(cfg)
	if err := f.Attach(name, 0, ns, NativeLink); err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	if err := f.Attach(name+VLANPort, vlan, ns, "vlan"); err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	for _, a := range native {
		if err := ns.AddAddress(NativeLink, a); err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
	}
	for _, p := range prefixes {
		first := p.Masked().Addr().Next()
		if err := ns.AddAddress("vlan", netip.PrefixFrom(first, p.Bits())); err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
	}
	for _, s := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf." + NativeLink + ".proxy_arp"} {
		if err := ns.SetSysctl(s, "1"); err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
	}
	return ns, nil
}
