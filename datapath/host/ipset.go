package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"towtank/datapath"
)

// SetPrefix begins the name of every ipset, and of every iptables chain, that is ours.
const SetPrefix = "TOWTANK-"

// SetType is the type of an ipset.
type SetType string

// The set types.
const (
	SetIP     SetType = "hash:ip"      // addresses
	SetNet    SetType = "hash:net"     // prefixes, of length 1 up
	SetIPPort SetType = "hash:ip,port" // address, protocol and port
)

// IPSet is an ipset.
type IPSet struct {
	Name    string // SetPrefix…, at most 31 bytes
	Type    SetType
	Family  Family
	MaxElem uint32 // 0 means 65536, the default of ipset
}

// NewIPSet checks s.
func NewIPSet(s IPSet) (IPSet, error) {
	if err := checkSetName(s.Name); err != nil {
		return IPSet{}, err
	}
	switch s.Type {
	case SetIP, SetNet, SetIPPort:
	default:
		return IPSet{}, fmt.Errorf("ipset %s: type %q: want hash:ip, hash:net or hash:ip,port", s.Name, s.Type)
	}
	if s.Family != V4 && s.Family != V6 {
		return IPSet{}, fmt.Errorf("ipset %s: family %d: want 4 or 6", s.Name, s.Family)
	}
	if s.MaxElem == 0 {
		s.MaxElem = 65536
	}
	return s, nil
}

func checkSetName(name string) error {
	if !strings.HasPrefix(name, SetPrefix) {
		return fmt.Errorf("ipset %q: our sets are named %s…", name, SetPrefix)
	}
	return checkWord("ipset", name, 31)
}

// ParseIPSet reads the text of an IPSet.
func ParseIPSet(text string) (IPSet, error) {
	var s IPSet
	w := newWords(text)
	if !w.accept("create") {
		return s, fmt.Errorf("ipset %q: want create NAME TYPE family FAMILY", text)
	}
	s.Name = w.next()
	s.Type = SetType(w.next())
	for !w.done() {
		var err error
		switch o := w.next(); o {
		case "family":
			var v string
			v, err = w.value(o)
			switch v {
			case "inet":
				s.Family = V4
			case "inet6":
				s.Family = V6
			default:
				err = fmt.Errorf("family %q: want inet or inet6", v)
			}
		case "maxelem":
			var n uint64
			n, err = w.number(o, 32)
			s.MaxElem = uint32(n)
		default:
			err = w.unknown(o)
		}
		if err != nil {
			return IPSet{}, fmt.Errorf("ipset: %w", err)
		}
	}
	return NewIPSet(s)
}

// Kind returns datapath.KindIPSet.
func (IPSet) Kind() datapath.Kind { return datapath.KindIPSet }

// Key is the name.
func (s IPSet) Key() datapath.Key { return datapath.Key{Kind: datapath.KindIPSet, Name: s.Name} }

// String returns the set as `ipset save` prints it, less what the kernel adjusts by itself
// (hashsize, bucketsize, initval).
func (s IPSet) String() string {
	fam := "inet"
	if s.Family == V6 {
		fam = "inet6"
	}
	return fmt.Sprintf("create %s %s family %s maxelem %d", s.Name, s.Type, fam, s.MaxElem)
}

// IPSetEntry is a member of an ipset.
type IPSetEntry struct {
	Set string
	// Element is 10.0.0.1, 10.0.0.0/24 or 10.0.0.1,tcp:80, normalised by NewIPSetEntry.
	Element string
}

// NewIPSetEntry normalises e: host bits of prefixes, full-length prefixes, protocol names. That the
// element fits the type of its set is checked when it is applied.
func NewIPSetEntry(e IPSetEntry) (IPSetEntry, error) {
	if err := checkSetName(e.Set); err != nil {
		return IPSetEntry{}, err
	}
	el, err := ParseElement(e.Element)
	if err != nil {
		return IPSetEntry{}, fmt.Errorf("ipset %s: %w", e.Set, err)
	}
	e.Element = el.String()
	return e, nil
}

// NetEntry returns the member p of a hash:ip or hash:net.
func NetEntry(set string, p netip.Prefix) (IPSetEntry, error) {
	return NewIPSetEntry(IPSetEntry{set, p.String()})
}

// PortEntry returns the member a,proto:port of a hash:ip,port; proto is an IP protocol number.
func PortEntry(set string, a netip.Addr, proto uint8, port uint16) (IPSetEntry, error) {
	return NewIPSetEntry(IPSetEntry{set, Element{netip.PrefixFrom(a, a.BitLen()), proto, port}.String()})
}

// ParseIPSetEntry reads the text of an IPSetEntry.
func ParseIPSetEntry(text string) (IPSetEntry, error) {
	f := strings.Fields(text)
	if len(f) != 3 || f[0] != "add" {
		return IPSetEntry{}, fmt.Errorf("ipset entry %q: want add SET ELEMENT", text)
	}
	return NewIPSetEntry(IPSetEntry{f[1], f[2]})
}

// Kind returns datapath.KindIPSetEntry.
func (IPSetEntry) Kind() datapath.Kind { return datapath.KindIPSetEntry }

// Key is the set and the element.
func (e IPSetEntry) Key() datapath.Key {
	return datapath.Key{Kind: datapath.KindIPSetEntry, Name: e.Set + " " + e.Element}
}

// String returns the entry as `ipset save` prints it.
func (e IPSetEntry) String() string { return "add " + e.Set + " " + e.Element }

// Element is a parsed member of an ipset; Proto is 0 in sets without port.
type Element struct {
	Net   netip.Prefix
	Proto uint8
	Port  uint16
}

// ParseElement reads 10.0.0.1, 10.0.0.0/24 or 10.0.0.1,tcp:80 (tcp if no protocol is given).
func ParseElement(s string) (Element, error) {
	var e Element
	ip, port, hasPort := strings.Cut(s, ",")
	p, err := parsePrefix(ip)
	if err != nil {
		return e, fmt.Errorf("element %q: %w", s, err)
	}
	if err := checkPrefix("element", p); err != nil {
		return e, err
	}
	if p.Bits() == 0 {
		return e, fmt.Errorf("element %q: a set cannot hold a prefix of length 0", s)
	}
	e.Net = p.Masked()
	if !hasPort {
		return e, nil
	}
	if !p.IsSingleIP() {
		return e, fmt.Errorf("element %q: want a single address with a port", s)
	}
	e.Proto = 6
	if proto, rest, ok := strings.Cut(port, ":"); ok {
		port = rest
		if e.Proto, err = parseProto(proto); err != nil {
			return e, fmt.Errorf("element %q: %w", s, err)
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return e, fmt.Errorf("element %q: port %q: want 0 to 65535", s, port)
	}
	switch e.Proto {
	case 6, 17, 132:
	default:
		return e, fmt.Errorf("element %q: want tcp, udp or sctp with a port", s)
	}
	e.Port = uint16(n)
	return e, nil
}

// String returns the element as `ipset save` prints it.
func (e Element) String() string {
	s := formatPrefix(e.Net)
	if e.Proto != 0 {
		s += "," + protoName(e.Proto) + ":" + strconv.Itoa(int(e.Port))
	}
	return s
}
