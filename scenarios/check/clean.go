package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/datapath"
	"towtank/sim"
	"towtank/sim/kube"
)

// Clean returns what is wrong with a node that is to be clean: what is wanted equals the dump, nothing is
// pending, and every object of ours belongs to a Service, Egress, Pod or Node that exists in Kubernetes
// now, or to the node itself.
func (c *Checker) Clean(n *sim.Node) []string {
	c.count++
	s := n.Store()
	if s == nil {
		return []string{"no agent ever ran"}
	}
	have := dump(n)
	out, unowned := compare(s, have)
	for _, u := range unowned {
		out = append(out, "without an owner: "+u)
	}
	there := make(map[datapath.Key]bool, len(have))
	for _, h := range have {
		there[h.key] = true
	}
	owned := map[datapath.Key]bool{} // by a unit whose object exists
	stale := map[datapath.Key]string{}
	for _, u := range s.Units() {
		why := c.orphaned(n, u)
		for _, o := range s.Objects(u) {
			if why == "" {
				owned[o.Key()] = true
			} else if there[o.Key()] {
				stale[o.Key()] = why
			}
		}
	}
	for _, h := range have {
		if why := stale[h.key]; why != "" && !owned[h.key] {
			out = append(out, why+": "+text(h.obj))
		}
	}
	return out
}

// orphaned says why a unit belongs to nothing that exists in Kubernetes, "" if it does.
func (c *Checker) orphaned(n *sim.Node, unit string) string {
	kind, rest, _ := strings.Cut(unit, "/")
	switch kind {
	case "host":
		return ""
	case "sandbox":
		pod := n.PodOfSandbox(unit)
		if pod == "" {
			return "sandbox " + rest + " is known no more"
		}
		return c.absent(kube.KindPod, pod)
	case "podegress":
		return c.absent(kube.KindPod, rest)
	case "node":
		return c.absent(kube.KindNode, rest)
	case "svcskip", "svchealth":
		return c.absent(kube.KindService, rest)
	case "svcport":
		return c.servicePort(rest)
	case "egressip":
		ip, err := netip.ParseAddr(rest)
		if err != nil {
			return unit + ": " + err.Error()
		}
		for _, o := range c.w.Kube.List(kube.KindEgress) {
			eg := o.(*v1beta1.Egress)
			for _, text := range []string{eg.Spec.EgressIP, eg.Status.EgressIP} {
				if a, err := netip.ParseAddr(text); err == nil && a == ip {
					return ""
				}
			}
		}
		return "no Egress has " + rest
	}
	return "unit " + unit + " is of no known kind"
}

func (c *Checker) absent(kind kube.Kind, key string) string {
	ns, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		ns, name = "", key
	}
	if _, err := c.w.Kube.Get(kind, ns, name); err != nil {
		return fmt.Sprintf("%s %s does not exist", kind, key)
	}
	return ""
}

// servicePort looks for what a unit is named after: namespace/name:port/family. A port without a name
// goes by its protocol.
func (c *Checker) servicePort(rest string) string {
	key, port, _ := strings.Cut(rest, ":")
	port, _, _ = strings.Cut(port, "/")
	ns, name, _ := strings.Cut(key, "/")
	o, err := c.w.Kube.Get(kube.KindService, ns, name)
	if err != nil {
		return "Service " + key + " does not exist"
	}
	has := slices.ContainsFunc(o.(*corev1.Service).Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Name == port || p.Name == "" && (strings.EqualFold(string(p.Protocol), port) || p.Protocol == "" && port == "tcp")
	})
	if !has {
		return "Service " + key + " has no port " + port
	}
	return ""
}
