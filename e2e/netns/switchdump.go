//go:build linux

package netns

import (
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"towtank/agent/pipeline"
	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/scenarios/check"
)

// switchDump is what Open vSwitch has on a bridge, read on a connection of our own.
type switchDump struct {
	flows  []openflow.FlowEntry
	groups []openflow.GroupEntry
	meters []*openflow.Meter
	ports  []openflow.PortInfo
}

// dumpLimit bounds the reading of a switch.
const dumpLimit = 10 * time.Second

// dumpSwitch reads the integration bridge.
func (m *machine) dumpSwitch() (*switchDump, error) {
	d, err := readSwitch(m.ovs.OpenFlow(bridge))
	if err != nil {
		return nil, fmt.Errorf("node %s: reading %s: %w", m.name, bridge, err)
	}
	return d, nil
}

func readSwitch(socket string) (*switchDump, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(dumpLimit)); err != nil {
		return nil, err
	}
	ask := openflow.AppendHello(nil, 1)
	ask = openflow.AppendFlowDumpRequest(ask, 2)
	ask = openflow.AppendGroupDescRequest(ask, 3)
	ask = openflow.AppendMeterConfigRequest(ask, 4)
	ask = openflow.AppendPortDescRequest(ask, 5)
	ask = openflow.AppendBarrierRequest(ask, 6)
	if _, err := conn.Write(ask); err != nil {
		return nil, err
	}
	d := &switchDump{}
	for {
		b := make([]byte, 8)
		if _, err := io.ReadFull(conn, b); err != nil {
			return nil, err
		}
		h, err := openflow.DecodeHeader(b)
		if err != nil {
			return nil, err
		}
		b = append(b, make([]byte, int(h.Length)-len(b))...)
		if _, err := io.ReadFull(conn, b[8:]); err != nil {
			return nil, err
		}
		_, msg, err := openflow.Decode(b)
		if err != nil {
			return nil, err
		}
		switch t := msg.(type) {
		case openflow.FlowStats:
			d.flows = append(d.flows, t.Flows...)
		case openflow.GroupDesc:
			d.groups = append(d.groups, t.Groups...)
		case openflow.MeterConfig:
			d.meters = append(d.meters, t.Meters...)
		case openflow.PortDesc:
			d.ports = append(d.ports, t.Ports...)
		case *openflow.Error:
			return nil, t
		case openflow.BarrierReply:
			return d, nil
		}
	}
}

// learned reports whether a flow was made by another flow.
func learned(f *openflow.Flow) bool { return f.Table() == pipeline.TableAffinity }

// ours are the flows, groups and meters that carry our mark, and what of ours cannot be read.
func (d *switchDump) ours() (objs []datapath.Object, unread []string) {
	for _, e := range d.flows {
		switch {
		case !openflow.OurCookie(e.Cookie):
		case e.Err != nil:
			unread = append(unread, fmt.Sprintf("flow with cookie %#x: %v", e.Cookie, e.Err))
		case !learned(e.Flow):
			objs = append(objs, e.Flow)
		}
	}
	for _, e := range d.groups {
		if e.Err != nil {
			unread = append(unread, fmt.Sprintf("group %d: %v", e.ID, e.Err))
		} else {
			objs = append(objs, e.Group)
		}
	}
	for _, m := range d.meters {
		objs = append(objs, m)
	}
	return objs, unread
}

// foreign are the flows of others, as text.
func (d *switchDump) foreign() (out []string) {
	for _, e := range d.flows {
		switch {
		case openflow.OurCookie(e.Cookie):
		case e.Err != nil:
			out = append(out, fmt.Sprintf("flow with cookie %#x: %v", e.Cookie, e.Err))
		case !learned(e.Flow):
			out = append(out, "flow "+e.Flow.String())
		}
	}
	return out
}

// dangling are the objects of a list that name a group, meter or port that the switch does not have.
func (d *switchDump) dangling(objs []datapath.Object) (out []string) {
	group := func(id uint32) bool {
		return slices.ContainsFunc(d.groups, func(g openflow.GroupEntry) bool { return g.ID == id })
	}
	meter := func(id uint32) bool {
		return slices.ContainsFunc(d.meters, func(m *openflow.Meter) bool { return m.ID == id })
	}
	port := func(n uint32) bool {
		return n >= openflow.PortMax || slices.ContainsFunc(d.ports, func(p openflow.PortInfo) bool { return p.Number == n })
	}
	for _, o := range objs {
		var groups, meters []uint32
		var actions []openflow.Action
		switch t := o.(type) {
		case *openflow.Flow:
			groups, meters, actions = t.Groups(nil), t.Meters(nil), t.Actions()
			if in := t.Match().Get(openflow.InPort); in.Exact() && !port(uint32(in.Value.Lo)) {
				out = append(out, fmt.Sprintf("port %d: %s", in.Value.Lo, text(o)))
			}
		case *openflow.Group:
			groups, meters = t.Groups(nil), t.Meters(nil)
			for _, b := range t.Buckets() {
				actions = append(actions, b.Actions...)
			}
		}
		for _, id := range groups {
			if !group(id) {
				out = append(out, fmt.Sprintf("group %d: %s", id, text(o)))
			}
		}
		for _, id := range meters {
			if !meter(id) {
				out = append(out, fmt.Sprintf("meter %d: %s", id, text(o)))
			}
		}
		for _, a := range actions {
			if n, ok := check.PortOf(a); ok && !port(n) {
				out = append(out, fmt.Sprintf("port %d: %s", n, text(o)))
			}
		}
	}
	return out
}

func text(o datapath.Object) string { return string(o.Kind()) + " " + o.String() }
