package shell

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"

	"towtank/agent/config"
	"towtank/agent/edge"
)

// network is the name under which host-local keeps the addresses.
const network = "towtank"

// IPAM is edge.IPAM by host-local: its files on disk are the only store.
type IPAM struct {
	q     *Queue
	dir   string
	cidrs []netip.Prefix
	mu    sync.Mutex // host-local's lock is per process
}

// NewIPAM returns an IPAM whose files are in dir (host-local's dataDir).
func NewIPAM(q *Queue, dir string, cidrs []netip.Prefix) *IPAM {
	return &IPAM{q: q, dir: dir, cidrs: cidrs}
}

func rangeSet(c netip.Prefix) (*allocator.RangeSet, error) {
	subnet := net.IPNet{IP: c.Masked().Addr().AsSlice(), Mask: net.CIDRMask(c.Bits(), c.Addr().BitLen())}
	gw := config.GatewayOf(c)
	r := allocator.Range{Subnet: cnitypes.IPNet(subnet), Gateway: gw.AsSlice()}
	if err := r.Canonicalize(); err != nil {
		return nil, fmt.Errorf("the node's Pod CIDR %s: %w", c, err)
	}
	return &allocator.RangeSet{r}, nil
}

func (i *IPAM) with(f func(*disk.Store) error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		return fmt.Errorf("IPAM directory: %w", err)
	}
	s, err := disk.New(network, i.dir)
	if err != nil {
		return fmt.Errorf("IPAM in %s: %w", i.dir, err)
	}
	defer s.Close()
	return f(s)
}

// Add implements edge.IPAM. An attachment that has addresses keeps them.
func (i *IPAM) Add(a edge.Attachment, done func([]netip.Prefix, error)) {
	go func() {
		var out []netip.Prefix
		err := i.with(func(s *disk.Store) error {
			have := s.GetByID(a.ContainerID, a.Ifname)
			for n, c := range i.cidrs {
				ip, err := i.one(s, a, c, n, have)
				if err != nil {
					return err
				}
				out = append(out, netip.PrefixFrom(ip, c.Bits()))
			}
			return nil
		})
		i.q.Post(func() { done(out, err) })
	}()
}

func (i *IPAM) one(s *disk.Store, a edge.Attachment, c netip.Prefix, n int, have []net.IP) (netip.Addr, error) {
	for _, h := range have {
		if ip, ok := netip.AddrFromSlice(h); ok && c.Contains(ip.Unmap()) {
			return ip.Unmap(), nil
		}
	}
	set, err := rangeSet(c)
	if err != nil {
		return netip.Addr{}, err
	}
	got, err := allocator.NewIPAllocator(set, s, n).Get(a.ContainerID, a.Ifname, nil)
	if err != nil {
		return netip.Addr{}, err
	}
	ip, ok := netip.AddrFromSlice(got.Address.IP)
	if !ok {
		return netip.Addr{}, fmt.Errorf("host-local gave %v, which is no address", got.Address)
	}
	return ip.Unmap(), nil
}

// Del implements edge.IPAM.
func (i *IPAM) Del(a edge.Attachment, done func(error)) {
	go func() {
		err := i.with(func(s *disk.Store) error {
			if err := s.Lock(); err != nil {
				return err
			}
			defer s.Unlock() //nolint:errcheck // the lock goes with the file
			return s.ReleaseByID(a.ContainerID, a.Ifname)
		})
		i.q.Post(func() { done(err) })
	}()
}

// GC implements edge.IPAM. Addresses of keepIPs stay whoever has them.
func (i *IPAM) GC(keep []edge.Attachment, keepIPs []netip.Addr, done func(error)) {
	go func() {
		err := i.with(func(s *disk.Store) error {
			var list []cnitypes.GCAttachment
			for _, a := range keep {
				list = append(list, cnitypes.GCAttachment{ContainerID: a.ContainerID, IfName: a.Ifname})
			}
			for _, ip := range keepIPs {
				if a, ok := i.holder(ip); ok {
					list = append(list, a)
				}
			}
			if err := s.Lock(); err != nil {
				return err
			}
			defer s.Unlock() //nolint:errcheck // the lock goes with the file
			return s.GC(list)
		})
		i.q.Post(func() { done(err) })
	}()
}

// holder reads who has an address: the file that is named after it has container id and interface.
func (i *IPAM) holder(ip netip.Addr) (cnitypes.GCAttachment, bool) {
	data, err := os.ReadFile(disk.GetEscapedPath(filepath.Join(i.dir, network), ip.String()))
	if err != nil {
		return cnitypes.GCAttachment{}, false
	}
	id, ifname, ok := strings.Cut(string(data), disk.LineBreak)
	return cnitypes.GCAttachment{ContainerID: id, IfName: ifname}, ok
}
