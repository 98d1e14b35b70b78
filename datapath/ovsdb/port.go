// Package ovsdb holds what the agent keeps in Open vSwitch's database: ports of the bridge with their
// interface.
package ovsdb

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath"
)

// MaxRequestedOFPort is the largest OpenFlow port number that may be requested (ovs-vswitchd.conf.db,
// column ofport_request).
const MaxRequestedOFPort = 65279

// Port is a row of the Port table with its one Interface. Ports are immutable; use NewPort or
// ParsePort.
type Port struct {
	spec PortSpec
	text string
}

// PortSpec says what a port is.
type PortSpec struct {
	Name          string            // of the port and its interface, 1 to 15 bytes
	Type          string            // of the interface: "" (a device of the system), internal, geneve, vxlan, …
	Options       map[string]string // of the interface
	ExternalIDs   map[string]string // of the port
	OFPortRequest uint16            // 1 to 65279; 0: OVS picks one
	MAC           string            // of an internal interface, in colon notation; "": OVS picks one
	Tag           uint16            // VLAN of an access port, 1 to 4094; 0: none
	// MTURequest is the MTU of an internal interface, in bytes, 68 to 65535; 0: OVS sets the least of the
	// bridge's ports, anew whenever those change.
	MTURequest uint16
}

// NewPort returns the port, or an error that names it if the database would refuse it.
func NewPort(s PortSpec) (*Port, error) {
	if len(s.Name) == 0 || len(s.Name) > 15 || strings.ContainsAny(s.Name, " \t\n,=\"/") {
		return nil, fmt.Errorf("port %q: want a name of 1 to 15 bytes without blanks, commas, quotes and slashes", s.Name)
	}
	if strings.ContainsAny(s.Type, " \t\n,=\"") {
		return nil, fmt.Errorf("port %s: type %q is no interface type", s.Name, s.Type)
	}
	if s.OFPortRequest > MaxRequestedOFPort {
		return nil, fmt.Errorf("port %s: ofport_request %d: want 1 to %d", s.Name, s.OFPortRequest, MaxRequestedOFPort)
	}
	if s.Tag > 4094 {
		return nil, fmt.Errorf("port %s: tag %d: want 1 to 4094", s.Name, s.Tag)
	}
	if s.MTURequest != 0 && s.MTURequest < 68 {
		return nil, fmt.Errorf("port %s: mtu_request %d: want 68 to 65535", s.Name, s.MTURequest)
	}
	if s.MAC != "" {
		if len(s.MAC) != 17 || strings.Trim(strings.ToLower(s.MAC), "0123456789abcdef:") != "" {
			return nil, fmt.Errorf("port %s: mac %q: want a form such as 0a:00:00:00:00:01", s.Name, s.MAC)
		}
		s.MAC = strings.ToLower(s.MAC)
	}
	s.Options, s.ExternalIDs = maps.Clone(s.Options), maps.Clone(s.ExternalIDs)
	for _, m := range []map[string]string{s.Options, s.ExternalIDs} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if k == "" || strings.ContainsAny(k, "= \t\n\"") {
				return nil, fmt.Errorf("port %s: key %q: want one without blanks, quotes and =", s.Name, k)
			}
		}
	}
	p := &Port{spec: s}
	p.text = p.format()
	return p, nil
}

// Name returns the port's name.
func (p *Port) Name() string { return p.spec.Name }

// Type returns the interface's type, "" for a device of the system.
func (p *Port) Type() string { return p.spec.Type }

// Option returns an option of the interface, "" if it is not set.
func (p *Port) Option(key string) string { return p.spec.Options[key] }

// ExternalID returns an external id of the port, "" if it is not set.
func (p *Port) ExternalID(key string) string { return p.spec.ExternalIDs[key] }

// OurExternalID is how the keys of external_ids begin that mark a port as the agent's.
const OurExternalID = "towtank-"

// Ours reports whether the port is the agent's: it has an external id of ours.
func (p *Port) Ours() bool {
	for k := range p.spec.ExternalIDs {
		if strings.HasPrefix(k, OurExternalID) {
			return true
		}
	}
	return false
}

// ExternalIDs returns a copy of the external ids.
func (p *Port) ExternalIDs() map[string]string { return maps.Clone(p.spec.ExternalIDs) }

// Options returns a copy of the interface's options.
func (p *Port) Options() map[string]string { return maps.Clone(p.spec.Options) }

// OFPortRequest returns the requested OpenFlow port number, 0 for none.
func (p *Port) OFPortRequest() uint16 { return p.spec.OFPortRequest }

// MAC returns the requested Ethernet address, "" for none.
func (p *Port) MAC() string { return p.spec.MAC }

// Tag returns the VLAN of an access port, 0 for none.
func (p *Port) Tag() uint16 { return p.spec.Tag }

// MTURequest returns the requested MTU in bytes, 0 for none.
func (p *Port) MTURequest() uint16 { return p.spec.MTURequest }

// Kind returns datapath.KindPort.
func (*Port) Kind() datapath.Kind { return datapath.KindPort }

// Key identifies the port by its name.
func (p *Port) Key() datapath.Key { return datapath.Key{Kind: datapath.KindPort, Name: p.spec.Name} }

// String returns the text, in the columns' names as ovs-vsctl has them.
func (p *Port) String() string { return p.text }

func (p *Port) format() string {
	s := &p.spec
	var b strings.Builder
	b.WriteString(s.Name)
	if s.Type != "" {
		b.WriteString(" type=" + s.Type)
	}
	if s.MAC != "" {
		b.WriteString(" mac=" + s.MAC)
	}
	if s.OFPortRequest != 0 {
		b.WriteString(" ofport_request=" + strconv.Itoa(int(s.OFPortRequest)))
	}
	if s.Tag != 0 {
		b.WriteString(" tag=" + strconv.Itoa(int(s.Tag)))
	}
	if s.MTURequest != 0 {
		b.WriteString(" mtu_request=" + strconv.Itoa(int(s.MTURequest)))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Options)) {
		b.WriteString(" options:" + k + "=" + quote(s.Options[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(s.ExternalIDs)) {
		b.WriteString(" external_ids:" + k + "=" + quote(s.ExternalIDs[k]))
	}
	return b.String()
}

// quote leaves simple values as they are.
func quote(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r >= 0x7f }) {
		return strconv.Quote(s)
	}
	return s
}

// ParsePort parses the text of a port: "NAME type=T mac=M ofport_request=N tag=N mtu_request=N
// options:K=V … external_ids:K=V …". Values with blanks are quoted as in Go.
func ParsePort(text string) (*Port, error) {
	words, err := splitWords(text)
	if err != nil || len(words) == 0 {
		return nil, fmt.Errorf("port %q: want NAME column=value …: %v", text, err)
	}
	s := PortSpec{Name: words[0], Options: map[string]string{}, ExternalIDs: map[string]string{}}
	for _, w := range words[1:] {
		key, val, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("port %s: %q: want column=value", s.Name, w)
		}
		if strings.HasPrefix(val, `"`) {
			if val, err = strconv.Unquote(val); err != nil {
				return nil, fmt.Errorf("port %s: %q: the quotes do not match", s.Name, w)
			}
		}
		switch column, sub, _ := strings.Cut(key, ":"); column {
		case "type":
			if s.Type = val; val == "system" {
				s.Type = ""
			}
		case "mac":
			s.MAC = val
		case "ofport_request", "tag", "mtu_request":
			n, err := strconv.ParseUint(val, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("port %s: %s %q is not a number from 0 to 65535", s.Name, column, val)
			}
			*map[string]*uint16{"ofport_request": &s.OFPortRequest, "tag": &s.Tag, "mtu_request": &s.MTURequest}[column] = uint16(n)
		case "options":
			s.Options[sub] = val
		case "external_ids":
			s.ExternalIDs[sub] = val
		default:
			return nil, fmt.Errorf("port %s: column %q is not supported", s.Name, column)
		}
	}
	return NewPort(s)
}

// splitWords splits at blanks outside double quotes.
func splitWords(s string) ([]string, error) {
	var words []string
	start, quoted := -1, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if start < 0 {
				start = i
			}
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if start >= 0 {
				words = append(words, s[start:i])
			}
			start = -1
		case start < 0:
			start = i
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if start >= 0 {
		words = append(words, s[start:])
	}
	return words, nil
}
