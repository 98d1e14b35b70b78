package egress

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/tables"
)

// maxIPsAnnotation overrides maxEgressIPsPerNode on one node; the name is Antrea's.
const maxIPsAnnotation = "node.antrea.io/max-egress-ips"

// Placement is what the schedule says of one Egress from a pool.
type Placement struct {
	IP   netip.Addr
	Node string // "" if no node can take it
}

// schedule places the IPs of all Egresses with a pool on the alive nodes. Every agent computes the
// same from the same input: Egresses in order of creation take the first node of their preference
// that still has room. The preference is a rendezvous hash (highest random weight: Thaler and
// Ravishankar 1998), so that a node's death moves only what it held.
func schedule(t *tables.Tables) map[string]Placement {
	out := map[string]Placement{}
	byIP := map[netip.Addr]string{}
	used := map[string]int{}
	for _, e := range sortedEgresses(t) {
		ip, ok := poolIP(e)
		if !ok {
			continue
		}
		if node, done := byIP[ip]; done {
			out[e.Name] = Placement{ip, node}
			continue
		}
		node := ""
		pool := t.Pools[e.Spec.ExternalIPPool]
		if pool != nil {
			for _, n := range preference(ip, eligible(t, pool)) {
				if used[n] < capacity(t, n) {
					node = n
					used[n]++
					break
				}
			}
		}
		byIP[ip] = node
		out[e.Name] = Placement{ip, node}
	}
	return out
}

// poolIP returns the address of an Egress that is placed by the schedule.
func poolIP(e *v1beta1.Egress) (netip.Addr, bool) {
	if e.Spec.ExternalIPPool == "" || e.Spec.EgressIP == "" {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(e.Spec.EgressIP)
	return ip, err == nil
}

// sortedEgresses returns all Egresses, the oldest first, then by name.
func sortedEgresses(t *tables.Tables) []*v1beta1.Egress {
	list := make([]*v1beta1.Egress, 0, len(t.Egresses))
	for _, e := range t.Egresses {
		list = append(list, e)
	}
	slices.SortFunc(list, older)
	return list
}

func older(a, b *v1beta1.Egress) int {
	if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}

// eligible returns the alive nodes that the pool's selector picks, sorted. An unset selector picks
// every node, as the empty one does.
func eligible(t *tables.Tables, pool *v1beta1.ExternalIPPool) []string {
	sel, err := metav1.LabelSelectorAsSelector(&pool.Spec.NodeSelector)
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range t.Alive {
		if node := t.Nodes[n]; node != nil && !isWindows(node) && sel.Matches(labels.Set(node.Labels)) {
			names = append(names, n)
		}
	}
	return names
}

func isWindows(n *corev1.Node) bool { return n.Labels[corev1.LabelOSStable] == "windows" }

// preference orders nodes for an address, the most preferred first.
func preference(ip netip.Addr, nodes []string) []string {
	out := slices.Clone(nodes)
	weights := make(map[string]uint64, len(out))
	for _, n := range out {
		weights[n] = weight(ip.String(), n)
	}
	slices.SortFunc(out, func(a, b string) int {
		if c := cmp.Compare(weights[b], weights[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	return out
}

func weight(key, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(node))
	// FNV alone keeps nearby inputs close in the high bits; the finaliser of MurmurHash3 spreads them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}

// capacity returns how many Egress IPs a node takes. An annotation that is not a number from 0 to 255
// is ignored.
func capacity(t *tables.Tables, name string) int {
	limit := t.Cfg.MaxEgressIPsPerNode
	if n := t.Nodes[name]; n != nil {
		if v, ok := n.Annotations[maxIPsAnnotation]; ok {
			if i, err := strconv.Atoi(v); err == nil && i >= 0 && i <= 255 {
				limit = i
			}
		}
	}
	return limit
}

// spokesman returns the alive node that speaks for an Egress which no node holds.
func spokesman(t *tables.Tables, name string) string {
	best, bw := "", uint64(0)
	for _, n := range t.Alive {
		if w := weight(name, n); best == "" || w > bw {
			best, bw = n, w
		}
	}
	return best
}
