// Package database is a client of Open vSwitch's database: the JSON-RPC protocol of RFC 7047, for the ports of
// one bridge.
package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"towtank/datapath"
	"towtank/datapath/jsonrpc"
	"towtank/datapath/ovsdb"
)

// Name is the name of Open vSwitch's database.
const Name = "Open_vSwitch"

const (
	dialTimeout = 10 * time.Second // until the ports are known
	echoEvery   = 5 * time.Second
)

// Config says which database and bridge a Client is for, and who hears of its ports.
type Config struct {
	Network, Address string // "unix", PATH or "tcp", HOST:PORT
	Bridge           string
	// Before are the ports that were told of over an earlier connection: Changed hears first of those that are
	// not there any more, and then of all that are, changed or not.
	Before []string
	// Changed hears of every port whose number or link changed: of those that are there before Open returns, and
	// from then on from the reading goroutine. nil: nobody does.
	Changed func(datapath.PortEvent)
	// EchoEvery is how long the server may be silent until it is asked whether it is there; it is given up after
	// three times as long. 0: 5 s.
	EchoEvery time.Duration
}

// Client is a connection to the database, with a copy of the ports of one bridge that the server keeps up to
// date. It answers the server's echo requests. A connection that ended is not used again: dial anew.
type Client struct {
	bridge  string
	changed func(datapath.PortEvent)
	conn    *jsonrpc.Conn

	mu         sync.Mutex
	rows       map[string]map[string]row // table, uuid
	told       map[string]datapath.PortEvent
	curCfg     int64
	cfgWaiters []cfgWaiter
}

type row map[string]json.RawMessage

type cfgWaiter struct {
	cfg  int64
	done func(error)
}

// ErrNoBridge says that the database does not have the bridge.
var ErrNoBridge = errors.New("the bridge is not in the database")

// Dial opens a connection to the ports of a bridge.
func Dial(network, address, bridge string, changed func(datapath.PortEvent)) (*Client, error) {
	return Open(context.Background(), Config{Network: network, Address: address, Bridge: bridge, Changed: changed})
}

// Open connects to the server and reads the ports of the bridge. It returns an error if that takes more than 10 s,
// or when the context ends; the context is not used after that.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.EchoEvery == 0 {
		cfg.EchoEvery = echoEvery
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, cfg.Network, cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("ovsdb: %w", err)
	}
	c := &Client{bridge: cfg.Bridge, changed: cfg.Changed, rows: map[string]map[string]row{}, told: map[string]datapath.PortEvent{}}
	for _, name := range cfg.Before {
		c.told[name] = datapath.PortEvent{} // differs from what is there: how it was is not known
	}
	c.conn = jsonrpc.New(conn, c.notified)
	columns := func(names ...string) any { return map[string]any{"columns": names} }
	first := make(chan error, 1)
	c.conn.Go("monitor", []any{Name, "", map[string]any{
		"Bridge":       columns("name", "ports", "datapath_type"),
		"Port":         columns("name", "interfaces", "external_ids", "tag"),
		"Interface":    columns("name", "type", "options", "ofport", "ofport_request", "mac", "mtu_request", "link_state", "error"),
		"Open_vSwitch": columns("cur_cfg"),
	}}, func(raw json.RawMessage, err error) { // in the reading goroutine, before the first update
		if err == nil {
			err = c.update(raw)
		}
		first <- err
	})
	select {
	case err = <-first:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.conn.Close()
		return nil, fmt.Errorf("ovsdb: monitor: %w", err)
	}
	c.conn.KeepAlive(cfg.EchoEvery)
	go c.failWaiters()
	return c, nil
}

// failWaiters tells those who wait for vswitchd that the connection ended.
func (c *Client) failWaiters() {
	<-c.conn.Done()
	c.mu.Lock()
	waiters := c.cfgWaiters
	c.cfgWaiters = nil
	c.mu.Unlock()
	for _, w := range waiters {
		w.done(c.conn.Err())
	}
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

func (c *Client) notified(method string, params json.RawMessage) {
	var p []json.RawMessage
	if method != "update" || json.Unmarshal(params, &p) != nil || len(p) != 2 {
		return
	}
	if err := c.update(p[1]); err != nil {
		c.conn.Close()
	}
}

// update takes in a table-updates object.
func (c *Client) update(raw json.RawMessage) error {
	var tables map[string]map[string]struct{ New row }
	if err := json.Unmarshal(raw, &tables); err != nil {
		return fmt.Errorf("update %.100s: %w", raw, err)
	}
	c.mu.Lock()
	for name, rows := range tables {
		if c.rows[name] == nil {
			c.rows[name] = map[string]row{}
		}
		for id, r := range rows {
			if r.New == nil {
				delete(c.rows[name], id)
			} else {
				c.rows[name][id] = r.New
			}
		}
	}
	for _, r := range c.rows["Open_vSwitch"] {
		c.curCfg = numberOf(r["cur_cfg"])
	}
	events := c.portEvents()
	var due []func(error)
	c.cfgWaiters = slices.DeleteFunc(c.cfgWaiters, func(w cfgWaiter) bool {
		if w.cfg <= c.curCfg {
			due = append(due, w.done)
		}
		return w.cfg <= c.curCfg
	})
	c.mu.Unlock()
	for _, e := range events {
		if c.changed != nil {
			c.changed(e)
		}
	}
	for _, done := range due {
		done(nil)
	}
	return nil
}

// bridgeRow returns the bridge, nil if it is not there.
func (c *Client) bridgeRow() row {
	for _, r := range c.rows["Bridge"] {
		if textOf(r["name"]) == c.bridge {
			return r
		}
	}
	return nil
}

// port is a port of the bridge as the copy has it.
type port struct {
	portID, ifaceID string
	port, iface     row
}

func (c *Client) ports() map[string]port {
	out := map[string]port{}
	for _, id := range textsOf(c.bridgeRow()["ports"]) {
		p := c.rows["Port"][id]
		if p == nil {
			continue
		}
		for _, i := range textsOf(p["interfaces"]) {
			out[textOf(p["name"])] = port{id, i, p, c.rows["Interface"][i]}
		}
	}
	return out
}

// portEvents returns what is new about ports; those that went come first.
func (c *Client) portEvents() []datapath.PortEvent {
	now := map[string]datapath.PortEvent{}
	for name, p := range c.ports() {
		if name == c.bridge {
			continue
		}
		e := datapath.PortEvent{Name: name}
		if n := numberOf(p.iface["ofport"]); n > 0 {
			e.OFPort, e.Up = uint32(n), textOf(p.iface["link_state"]) != "down"
		}
		now[name] = e
	}
	var events []datapath.PortEvent
	for _, name := range slices.Sorted(maps.Keys(c.told)) {
		if _, there := now[name]; !there {
			events = append(events, datapath.PortEvent{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if e, old := now[name], c.told[name]; e != old {
			events = append(events, e)
		}
	}
	c.told = now
	return events
}

// Ports returns the ports of the bridge, sorted by name, without the local one. A port that this package
// cannot express is left out.
func (c *Client) Ports() []*ovsdb.Port {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.ports()
	var out []*ovsdb.Port
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if name == c.bridge || p.iface == nil {
			continue
		}
		made, err := ovsdb.NewPort(ovsdb.PortSpec{
			Name: name, Type: strings.TrimSuffix(textOf(p.iface["type"]), "system"), Options: mapOf(p.iface["options"]), ExternalIDs: mapOf(p.port["external_ids"]),
			OFPortRequest: uint16(numberOf(p.iface["ofport_request"])), MAC: textOf(p.iface["mac"]), Tag: uint16(numberOf(p.port["tag"])),
			MTURequest: uint16(numberOf(p.iface["mtu_request"])),
		})
		if err == nil {
			out = append(out, made)
		}
	}
	return out
}

// PortEvent returns what was told of a port last; ok is false if it is not there.
func (c *Client) PortEvent(name string) (e datapath.PortEvent, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok = c.told[name]
	return e, ok
}

// DatapathType returns the bridge's datapath_type: "" or "system", "netdev", "dummy".
func (c *Client) DatapathType() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return textOf(c.bridgeRow()["datapath_type"])
}

// Apply puts and deletes ports, in one transaction. If that is refused and has more than one port, each is
// tried in one of its own, so that the one at fault is found. done is called once, from another goroutine
// or, without a connection, at once.
func (c *Client) Apply(ops []datapath.Op, done func([]datapath.OpResult)) {
	c.transact(ops, func(err error) {
		var lost *jsonrpc.Error
		switch {
		case err == nil:
			done(datapath.AllResults(len(ops), datapath.Done, nil))
		case c.conn.Err() != nil && !errors.As(err, &lost):
			done(datapath.AllResults(len(ops), datapath.Unknown, err))
		case len(ops) == 1:
			done(datapath.AllResults(1, datapath.Refused, err))
		default:
			c.applyEach(ops, nil, done)
		}
	})
}

func (c *Client) applyEach(ops []datapath.Op, results []datapath.OpResult, done func([]datapath.OpResult)) {
	if len(results) == len(ops) {
		done(results)
		return
	}
	i := len(results)
	c.Apply(ops[i:i+1], func(r []datapath.OpResult) { c.applyEach(ops, append(results, r...), done) })
}

func (c *Client) transact(ops []datapath.Op, done func(error)) {
	params := []any{Name}
	c.mu.Lock()
	there, hasBridge := c.ports(), c.bridgeRow() != nil
	c.mu.Unlock()
	if !hasBridge {
		done(fmt.Errorf("ovsdb: %s: %w", c.bridge, ErrNoBridge))
		return
	}
	for i, op := range ops {
		old, exists := there[op.Key().Name]
		switch p, isPort := op.New.(*ovsdb.Port); {
		case op.Delete() && !exists:
		case op.Delete():
			params = append(params, c.mutatePorts("delete", wireUUID(old.portID)))
		case !isPort:
			done(fmt.Errorf("ovsdb: %s: not a port but %T", op.Key(), op.New))
			return
		default:
			params = append(params, c.put(p, i, old, exists)...)
		}
	}
	c.conn.Go("transact", params, func(raw json.RawMessage, err error) {
		if err == nil {
			_, err = txnError(raw)
		}
		done(err)
	})
}

func (c *Client) mutatePorts(how string, id any) any {
	return map[string]any{
		"op": "mutate", "table": "Bridge", "where": []any{[]any{"name", "==", c.bridge}},
		"mutations": []any{[]any{"ports", how, wireSet(id)}},
	}
}

func (c *Client) put(p *ovsdb.Port, i int, old port, exists bool) []any {
	optional := func(present bool, v any) any {
		if present {
			return v
		}
		return wireSet()
	}
	iface := map[string]any{
		"type": p.Type(), "options": wireMap(p.Options()),
		"ofport_request": optional(p.OFPortRequest() != 0, p.OFPortRequest()), "mac": optional(p.MAC() != "", p.MAC()), "mtu_request": optional(p.MTURequest() != 0, p.MTURequest()),
	}
	prow := map[string]any{"external_ids": wireMap(p.ExternalIDs()), "tag": optional(p.Tag() != 0, p.Tag())}
	if exists {
		where := func(id string) any { return []any{[]any{"_uuid", "==", wireUUID(id)}} }
		return []any{
			map[string]any{"op": "update", "table": "Interface", "where": where(old.ifaceID), "row": iface},
			map[string]any{"op": "update", "table": "Port", "where": where(old.portID), "row": prow},
		}
	}
	ifaceName, portName := fmt.Sprintf("iface%d", i), fmt.Sprintf("port%d", i)
	iface["name"], prow["name"], prow["interfaces"] = p.Name(), p.Name(), wireNamed(ifaceName)
	return []any{
		map[string]any{"op": "insert", "table": "Interface", "row": iface, "uuid-name": ifaceName},
		map[string]any{"op": "insert", "table": "Port", "row": prow, "uuid-name": portName},
		c.mutatePorts("insert", wireNamed(portName)),
	}
}

// Transact runs operations of RFC 7047, 5.2 in one transaction and waits.
func (c *Client) Transact(ops ...any) error {
	raw, err := c.conn.Call("transact", append([]any{Name}, ops...))
	if err != nil {
		return fmt.Errorf("ovsdb: %w", err)
	}
	_, err = txnError(raw)
	return err
}

// Sync has done called when ovs-vswitchd has taken in everything that was written before.
func (c *Client) Sync(done func(error)) {
	c.conn.Go("transact", []any{
		Name,
		map[string]any{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{[]any{"next_cfg", "+=", 1}}},
		map[string]any{"op": "select", "table": "Open_vSwitch", "where": []any{}, "columns": []any{"next_cfg"}},
	}, func(raw json.RawMessage, err error) {
		if err == nil {
			_, err = txnError(raw)
		}
		var results []struct{ Rows []row }
		if err == nil {
			err = json.Unmarshal(raw, &results)
		}
		if err == nil && (len(results) < 2 || len(results[1].Rows) == 0) {
			err = fmt.Errorf("ovsdb: sync: results %.100s", raw)
		}
		if err != nil {
			done(err)
			return
		}
		c.await(numberOf(results[1].Rows[0]["next_cfg"]), done)
	})
}

// await has done called when ovs-vswitchd has taken in a configuration, or when the connection has ended.
func (c *Client) await(cfg int64, done func(error)) {
	c.mu.Lock()
	// An answer may be handled while the connection ends: those who wait then were told already.
	err := c.conn.Err()
	if err == nil && c.curCfg < cfg {
		c.cfgWaiters = append(c.cfgWaiters, cfgWaiter{cfg, done})
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	done(err)
}
