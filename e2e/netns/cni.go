//go:build linux

package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"

	"towtank/agent/edge"
	"towtank/scenarios"
	"towtank/sim"
	"towtank/sim/kube"
)

// cniLimit is how long the runtime waits for an answer.
const cniLimit = 2 * time.Minute

// cniVersion is that of the configuration: the first with GC and STATUS.
const cniVersion = "1.1.0"

// call makes a CNI call for a sandbox; ips are addresses that an ADD asks for.
func (k *kubelet) call(m *machine, verb edge.CNIVerb, s *sandbox, ips []netip.Addr) edge.CNIReply {
	conf := map[string]any{}
	k.mu.Lock()
	if s.raw != nil {
		conf["prevResult"] = json.RawMessage(s.raw)
	}
	path := "/run/netns/" + k.c.prefix + s.id
	if s.space == nil && verb == edge.CNIDel {
		path = "" // the runtime knows that it is gone
	}
	if verb == edge.CNICheck && s.raw == nil {
		conf["prevResult"] = nothing(path, s.ifname)
	}
	k.mu.Unlock()
	if verb == edge.CNIAdd && len(ips) == 0 {
		m.adding.RLock()
		defer m.adding.RUnlock()
	}
	if len(ips) > 0 {
		m.adding.Lock() // nobody else is given the address that was asked for
		defer m.adding.Unlock()
		if err := m.request(ips); err != nil {
			return edge.CNIReply{Err: &edge.CNIError{Code: edge.CNIIPAMFailure, Msg: err.Error()}}
		}
	}
	if verb == edge.CNIAdd || verb == edge.CNIDel {
		defer k.c.changingPorts()()
	}
	ns, name := cut(s.pod)
	out, err := k.plugin(m, conf,
		"CNI_COMMAND="+string(verb), "CNI_CONTAINERID="+s.id, "CNI_NETNS="+path, "CNI_IFNAME="+s.ifname,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+ns+";K8S_POD_NAME="+name)
	if err != nil || verb != edge.CNIAdd {
		return answered(err)
	}
	result, err := resultOf(out, s.ifname)
	if err != nil {
		return failure(err)
	}
	k.mu.Lock()
	s.raw = out
	k.mu.Unlock()
	return edge.CNIReply{Result: result}
}

// nothing is what a runtime would have to have for a container that it never added.
func nothing(path, ifname string) map[string]any {
	return map[string]any{"cniVersion": cniVersion, "interfaces": []any{map[string]any{"name": ifname, "sandbox": path}}}
}

// plugin runs the CNI plugin of a node.
func (k *kubelet) plugin(m *machine, conf map[string]any, env ...string) ([]byte, error) {
	conf["cniVersion"], conf["name"], conf["type"], conf["socket"] = cniVersion, "towtank", "towtank-cni", m.socket()
	in, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cniLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.c.programs.cni)
	cmd.Env = append(append(os.Environ(), "CNI_PATH=/nowhere"), env...)
	cmd.Stdin = bytes.NewReader(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	var e edge.CNIError
	if json.Unmarshal(out.Bytes(), &e) == nil && e.Code != 0 {
		return nil, &e
	}
	return nil, fmt.Errorf("CNI plugin: %w: %s%s", err, out.String(), complaint.String())
}

func answered(err error) edge.CNIReply {
	if err == nil {
		return edge.CNIReply{}
	}
	var e *edge.CNIError
	if errors.As(err, &e) {
		return edge.CNIReply{Err: e}
	}
	return failure(err)
}

func failure(err error) edge.CNIReply {
	return edge.CNIReply{Err: &edge.CNIError{Code: edge.CNITryAgainLater, Msg: err.Error()}}
}

// resultOf reads what an ADD printed.
func resultOf(out []byte, ifname string) (*edge.CNIResult, error) {
	r, err := current.NewResult(out)
	if err != nil {
		return nil, fmt.Errorf("the result of ADD: %w", err)
	}
	c, err := current.GetResult(r)
	if err != nil {
		return nil, fmt.Errorf("the result of ADD: %w", err)
	}
	got := &edge.CNIResult{Ifname: ifname}
	for _, ip := range c.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		ones, _ := ip.Address.Mask.Size()
		got.IPs = append(got.IPs, netip.PrefixFrom(a.Unmap(), ones))
	}
	return got, nil
}

// request has the node's host-local give certain addresses next, by what it says it gave last.
func (m *machine) request(ips []netip.Addr) error {
	for _, ip := range ips {
		at := slices.IndexFunc(m.podCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
		if at < 0 {
			return fmt.Errorf("address %s is in none of the Pod networks of %s", ip, m.name)
		}
		if _, err := os.Stat(filepath.Join(m.addressDir(), "towtank", strings.ReplaceAll(ip.String(), ":", "_"))); err == nil {
			return fmt.Errorf("address %s is given out", ip)
		}
		if err := lastGiven(m.addressDir(), at, ip.Prev()); err != nil {
			return err
		}
	}
	return nil
}

// later has a CNI reply handed to the scenario, where it waits.
func (c *cluster) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies = append(c.replies, f)
}

// Await implements scenarios.Tank.
func (c *cluster) Await(cond func() bool, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(pollEvery) {
		c.mu.Lock()
		list := c.replies
		c.replies = nil
		c.mu.Unlock()
		for _, f := range list {
			f()
		}
		if cond() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("no answer within %s", limit)
		}
	}
}

// pollEvery is how often a condition is looked at that nobody tells of.
const pollEvery = 5 * time.Millisecond

// CNI implements scenarios.Tank.
func (c *cluster) CNI(n scenarios.Node, verb edge.CNIVerb, id, pod, ifname string, done func(edge.CNIReply)) error {
	m, ok := n.(*machine)
	if !ok {
		return fmt.Errorf("cni: %s is no node", n.Name())
	}
	k := c.kubelet
	if ifname == "" {
		ifname = "eth0"
	}
	ns, name := cut(pod)
	k.mu.Lock()
	s := k.byID[id]
	if verb == edge.CNIAdd {
		r := k.of(pod)
		r.manual, r.node = true, m.name
	}
	k.mu.Unlock()
	if verb == edge.CNIAdd && k.pod(pod) == nil {
		err := c.do(func(k *kube.Cluster) error {
			return k.CreatePod(kube.PodConfig{Namespace: ns, Name: name, Node: m.name})
		})
		if err != nil {
			return err
		}
	}
	switch {
	case s == nil && verb == edge.CNIAdd:
		var err error
		if s, err = k.newSandbox(id, pod, m.name, ifname, k.pod(pod)); err != nil {
			return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
		}
		k.mu.Lock()
		k.add(s)
		k.mu.Unlock()
	case s == nil:
		s = &sandbox{id: id, pod: pod, node: m.name, ifname: ifname}
	}
	k.mu.Lock()
	k.async(func() {
		reply := k.call(m, verb, s, nil)
		k.called(verb, s, reply)
		c.later(func() { done(reply) })
	})
	k.mu.Unlock()
	return nil
}

// called does what a runtime does after a bare call.
func (k *kubelet) called(verb edge.CNIVerb, s *sandbox, reply edge.CNIReply) {
	if reply.Err != nil {
		return
	}
	switch verb {
	case edge.CNIAdd:
		k.mu.Lock()
		s.result = reply.Result
		r := k.of(s.pod)
		k.mu.Unlock()
		k.report(r, addresses(reply.Result), true)
	case edge.CNIDel:
		k.mu.Lock()
		mine := k.byID[s.id] == s
		k.mu.Unlock()
		if mine {
			k.forget(s)
		}
	}
}

// CNIGC implements scenarios.Tank.
func (c *cluster) CNIGC(n scenarios.Node, keep []string, done func(edge.CNIReply)) {
	type attachment struct {
		ContainerID string `json:"containerID"`
		Ifname      string `json:"ifname"`
	}
	valid := []attachment{}
	k := c.kubelet
	k.mu.Lock()
	for _, id := range keep {
		ifname := "eth0"
		if s := k.byID[id]; s != nil {
			ifname = s.ifname
		}
		valid = append(valid, attachment{id, ifname})
	}
	k.mu.Unlock()
	k.bare(n, map[string]any{"cni.dev/valid-attachments": valid}, edge.CNIGC, done)
}

// CNIStatus implements scenarios.Tank.
func (c *cluster) CNIStatus(n scenarios.Node, done func(edge.CNIReply)) {
	c.kubelet.bare(n, map[string]any{}, edge.CNIStatus, done)
}

// bare makes a call that is about no container.
func (k *kubelet) bare(n scenarios.Node, conf map[string]any, verb edge.CNIVerb, done func(edge.CNIReply)) {
	m, ok := n.(*machine)
	if !ok {
		done(failure(fmt.Errorf("%s is no node", n.Name())))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.async(func() {
		_, err := k.plugin(m, conf, "CNI_COMMAND="+string(verb))
		k.c.later(func() { done(answered(err)) })
	})
}

// PreparePod implements scenarios.Tank.
func (c *cluster) PreparePod(key string, o sim.PodOptions) {
	c.kubelet.mu.Lock()
	defer c.kubelet.mu.Unlock()
	r := c.kubelet.of(key)
	r.ips, r.notReady, r.stopped, r.prepared = o.IPs, o.NotReady, o.NoAdd, true
}

// StartPod implements scenarios.Tank.
func (c *cluster) StartPod(key string) error {
	k := c.kubelet
	k.mu.Lock()
	r := k.pods[key]
	if r != nil {
		r.stopped, r.manual = false, false
	}
	k.mu.Unlock()
	if r == nil {
		return fmt.Errorf("pod %s is not known", key)
	}
	k.changed(key)
	return nil
}

// StopPod implements scenarios.Tank.
func (c *cluster) StopPod(key string) error {
	k := c.kubelet
	k.mu.Lock()
	r := k.pods[key]
	if r == nil {
		k.mu.Unlock()
		return fmt.Errorf("pod %s is not known", key)
	}
	r.stopped = true
	k.end(r)
	for _, s := range k.byID {
		if s.pod == key && s.space != nil {
			k.remove(s)
		}
	}
	k.mu.Unlock()
	k.report(r, nil, false)
	return nil
}

// SetPodReady implements scenarios.Tank.
func (c *cluster) SetPodReady(key string, ready bool) error {
	c.kubelet.mu.Lock()
	c.kubelet.of(key).notReady = !ready
	c.kubelet.mu.Unlock()
	ns, name := cut(key)
	return c.do(func(k *kube.Cluster) error { return k.SetPodReady(ns, name, ready) })
}

// ExecPod implements scenarios.Tank.
func (c *cluster) ExecPod(key, text string) (string, error) {
	c.kubelet.mu.Lock()
	s := c.kubelet.sandboxOf(key)
	c.kubelet.mu.Unlock()
	if s == nil || s.space == nil {
		return "", fmt.Errorf("pod %s does not run", key)
	}
	return s.space.run("sh", "-c", strings.TrimSpace(text))
}
