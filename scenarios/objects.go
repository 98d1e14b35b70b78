package scenarios

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/edge"
	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// topology makes nodes, external hosts and networks, and changes their labels.
func (r *Runner) topology(st lang.Step) error {
	w := r.tank
	switch t := st.(type) {
	case lang.Nodes:
		for _, name := range t.Names {
			if err := w.AddNode(name); err != nil {
				return asCall(err)
			}
		}
	case lang.External:
		c := sim.ExternalConfig{Name: t.Name, Addrs: t.IPs, Net: t.Net}
		for _, p := range t.Serve {
			c.Serve = append(c.Serve, sim.Port{Proto: protoNumber(p.Proto), Port: p.Port})
		}
		for _, ip := range t.IPs {
			if who := r.machineAt(ip, ""); who != "" {
				return callErrorf("ip: found %s, which is that of %s", ip, who)
			}
		}
		if !t.Next.IsZero() {
			n, err := r.node(t.Next)
			if err != nil {
				return err
			}
			c.Next = n.Name()
		}
		if err := w.AddExternal(c); err != nil {
			return asCall(err)
		}
	case lang.Network:
		if err := w.AddNetwork(t.Name, t.CIDR, t.VLAN); err != nil {
			return asCall(err)
		}
	case lang.Label:
		return r.keys(t.Node, t.Changes, w.Objects().ChangeLabels)
	case lang.Annotate:
		return r.keys(t.Node, t.Changes, w.Objects().ChangeAnnotations)
	}
	return nil
}

func (r *Runner) keys(ref lang.NodeRef, changes []lang.KeyChange, change func(kube.Kind, string, string, map[string]string, []string) error) error {
	n, err := r.node(ref)
	if err != nil {
		return err
	}
	set := map[string]string{}
	var remove []string
	for _, c := range changes {
		if c.Remove {
			remove = append(remove, c.Key)
		} else {
			set[c.Key] = c.Value
		}
	}
	if err := change(kube.KindNode, "", n.Name(), set, remove); err != nil {
		return asCall(err)
	}
	return nil
}

func protoNumber(p string) uint8 {
	switch p {
	case lang.ProtoUDP:
		return packet.ProtoUDP
	case lang.ProtoSCTP:
		return packet.ProtoSCTP
	}
	return packet.ProtoTCP
}

// objects changes the objects of the API.
func (r *Runner) objects(in *lang.Instance, st lang.Step, s *Step) error {
	w := r.tank
	switch t := st.(type) {
	case lang.Apply:
		data, ok := in.Data(t.File)
		if !ok {
			return callErrorf("no file %q in the archive", t.File)
		}
		results, err := w.Objects().Apply(data, t.File)
		noteEffect(s, results)
		return answered(s, t.Expect, err)
	case lang.Delete:
		if t.File != "" {
			data, ok := in.Data(t.File)
			if !ok {
				return callErrorf("no file %q in the archive", t.File)
			}
			if _, err := w.Objects().DeleteFile(data, t.File); err != nil {
				return errRefused{err}
			}
			return nil
		}
		k, err := kube.KindNamed(t.Object.Kind)
		if err != nil {
			return asCall(err)
		}
		if err := w.Objects().Delete(k, t.Object.Namespace, t.Object.Name); err != nil {
			return errRefused{err}
		}
	case lang.Patch:
		k, err := kube.KindNamed(t.Object.Kind)
		if err != nil {
			return asCall(err)
		}
		if _, err := w.Objects().Patch(k, t.Object.Namespace, t.Object.Name, []byte(t.JSON)); err != nil {
			return errRefused{err}
		}
	case lang.Namespace:
		return r.namespace(t)
	case lang.Endpoints:
		return r.endpoints(t)
	}
	return nil
}

// noteEffect says which of the applied objects do nothing here.
func noteEffect(s *Step, results []kube.Result) {
	var none []string
	for _, res := range results {
		if res.NoEffect {
			none = append(none, res.String())
		}
	}
	if len(none) > 0 {
		s.Outcome, s.Text2 = Info, "without effect here: "+strings.Join(none, ", ")
	}
}

// answered compares what the API said to a change with what was expected. Without an expectation, a refusal is an
// error of the file.
func answered(s *Step, want *lang.APIResult, err error) error {
	if want == nil {
		if err != nil {
			return errRefused{err}
		}
		return nil
	}
	s.Want = map[string]string{"expect": want.String()}
	s.Got.Value = "ok"
	if err != nil {
		s.Got.Value = err.Error()
	}
	if want.Fail != (err != nil) || err != nil && !strings.Contains(err.Error(), want.Text) {
		s.Outcome = Fail
	}
	return nil
}

// namespace creates a Namespace, or gives one that is there the labels.
func (r *Runner) namespace(t lang.Namespace) error {
	labels := keyValues(t.Labels)
	if _, err := r.tank.Objects().Get(kube.KindNamespace, "", t.Name); err != nil {
		if err := r.tank.Objects().CreateNamespace(t.Name, labels); err != nil {
			return asCall(err)
		}
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	if _, err := r.tank.Objects().Patch(kube.KindNamespace, "", t.Name, patch); err != nil {
		return asCall(err)
	}
	return nil
}

func keyValues(list []lang.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		out[kv.Key] = kv.Value
	}
	return out
}

// endpoints gives a Service endpoints that answer: addresses of the nodes' Pod networks, from the end
// down, where the IPAM does not come.
func (r *Runner) endpoints(t lang.Endpoints) error {
	var on []Node
	for _, ref := range t.Nodes {
		n, err := r.node(ref)
		if err != nil {
			return err
		}
		on = append(on, n)
	}
	if len(on) == 0 {
		on = r.tank.Nodes()
	}
	if err := r.tank.SetEndpoints(t.Namespace, t.Service, t.Count, on); err != nil {
		return asCall(err)
	}
	return nil
}

// pods makes, starts, stops and changes Pods.
func (r *Runner) pods(st lang.Step, s *Step) error {
	w := r.tank
	switch t := st.(type) {
	case lang.Pod:
		n, err := r.node(t.Node)
		if err != nil {
			return err
		}
		c := kube.PodConfig{Namespace: t.Namespace, Name: t.Name, Node: n.Name(), Labels: keyValues(t.Labels), HostNetwork: t.HostNetwork}
		for _, p := range t.Serve {
			c.Ports = append(c.Ports, kube.PodPort{Port: p.Port, Protocol: corev1.Protocol(strings.ToUpper(p.Proto))})
		}
		// Addresses that the node cannot give are for its address management to refuse, as in a cluster.
		if len(t.IPs) > 0 && t.HostNetwork {
			return callErrorf("ip: found %s, but a Pod with hostNetwork=true has the addresses of its node", t.IPs[0])
		}
		w.PreparePod(t.Namespace+"/"+t.Name, sim.PodOptions{IPs: t.IPs, NotReady: t.NotReady, NoAdd: t.NoAdd})
		if err := w.Objects().CreatePod(c); err != nil {
			return errRefused{err}
		}
	case lang.PodStart:
		return r.onPod(t.Pod, w.StartPod)
	case lang.PodStop:
		return r.onPod(t.Pod, w.StopPod)
	case lang.PodDelete:
		return r.onPod(t.Pod, func(key string) error {
			ns, name, _ := strings.Cut(key, "/")
			return w.Objects().Delete(kube.KindPod, ns, name)
		})
	case lang.PodReady:
		return r.onPod(t.Pod, func(key string) error { return w.SetPodReady(key, t.Ready) })
	case lang.PodTerminate:
		return r.onPod(t.Pod, func(key string) error {
			ns, name, _ := strings.Cut(key, "/")
			if err := w.Objects().SetPodTerminating(ns, name, !t.NotServing); err != nil {
				return err
			}
			// On other backends its processes run on until it is deleted.
			if x, ok := w.(interface{ EndServers(key string) }); ok && t.NotServing {
				x.EndServers(key)
			}
			return nil
		})
	}
	return nil
}

// machineAt names the node (but one) or external host that an address is given to, "" if there is none.
func (r *Runner) machineAt(ip netip.Addr, but string) string {
	for _, n := range r.tank.Nodes() {
		if n.Name() != but && n.Transport(ip.Is6()) == ip {
			return "node " + n.Name()
		}
	}
	for _, x := range r.tank.Externals() {
		if x.Addr(ip.Is6()) == ip {
			return "an external host"
		}
	}
	return ""
}

func (r *Runner) onPod(ref lang.PodRef, do func(key string) error) error {
	key, err := r.podKey(ref)
	if err != nil {
		return asCall(err)
	}
	if err := do(key); err != nil {
		return asCall(err)
	}
	return nil
}

// cniCall makes a bare CNI call. With an expectation it waits for the answer.
func (r *Runner) cniCall(st lang.Step, s *Step) error {
	t := st.(lang.CNI)
	w := r.tank
	n, err := r.cniNode(t)
	if err != nil {
		return err
	}
	var reply *edge.CNIReply
	done := func(x edge.CNIReply) { reply = &x }
	switch t.Op {
	case "gc":
		w.CNIGC(n, t.Keep, done)
	case "status":
		w.CNIStatus(n, done)
	default:
		if o, err := w.Objects().Get(kube.KindPod, t.Pod.Namespace, t.Pod.Name); err == nil && t.Op == "add" {
			if on := o.(*corev1.Pod).Spec.NodeName; on != "" && on != n.Name() {
				return callErrorf("node: found %s, but Pod %s/%s is bound to %s", n.Name(), t.Pod.Namespace, t.Pod.Name, on)
			}
		}
		verb := edge.CNIVerb(strings.ToUpper(t.Op))
		if err := w.CNI(n, verb, t.ID, t.Pod.Namespace+"/"+t.Pod.Name, t.IfName, done); err != nil {
			return asCall(err)
		}
	}
	if t.Expect == nil {
		return nil
	}
	if err := w.Await(func() bool { return reply != nil }, 5*time.Minute); err != nil {
		s.fail("%v", err)
		return nil
	}
	s.Want = map[string]string{"expect": t.Expect.String()}
	s.Got.Value = "ok"
	if reply.Err != nil {
		s.Got.Value = reply.Err.Error()
	}
	switch {
	case !t.Expect.Fail && reply.Err != nil:
		s.fail("want ok, got %v", reply.Err)
	case t.Expect.Fail && reply.Err == nil:
		s.fail("want an error, got ok")
	case t.Expect.Fail && t.Expect.Code != 0 && reply.Err.Code != t.Expect.Code:
		s.fail("want error=%d, got %v", t.Expect.Code, reply.Err)
	}
	return nil
}

func (r *Runner) cniNode(t lang.CNI) (Node, error) {
	if !t.Node.IsZero() {
		return r.node(t.Node)
	}
	return nil, callErrorf("cni %s: node=N is missing", t.Op)
}

// time lets virtual time pass.
func (r *Runner) time(st lang.Step, s *Step) error {
	switch t := st.(type) {
	case lang.Settle:
		within := t.Within
		if within == 0 {
			within = lang.DefaultSettle
		}
		if err := r.tank.Settle(within); err != nil {
			s.fail("not settled within %s: %v", within, err)
		}
	case lang.Advance:
		if err := r.tank.Advance(t.Duration); err != nil {
			s.fail("%v", err)
		}
	case lang.StepEvents:
		n := max(t.N, 1)
		if did := r.tank.Step(n); did < n {
			s.Outcome, s.Text2 = Info, fmt.Sprintf("%d events, then nothing was due", did)
		}
	}
	return nil
}

// prefixOf returns an address with a length; 0 is its whole length.
func prefixOf(ip netip.Addr, bits int) netip.Prefix {
	if bits == 0 {
		bits = ip.BitLen()
	}
	return netip.PrefixFrom(ip, bits)
}
