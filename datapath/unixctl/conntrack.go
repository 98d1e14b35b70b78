package unixctl

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"towtank/datapath"
)

// protoNumbers are the protocols that Open vSwitch prints the names of (ct_dpif_format_ipproto in lib/ct-dpif.c); of
// every other one it prints the number.
var protoNumbers = map[string]uint8{"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}

// DumpConntrack returns the entries of a zone, as dpctl/dump-conntrack prints them, and of ParseConntrack what is
// wrong with those that it cannot read.
func (c *Client) DumpConntrack(zone uint16) (entries []datapath.ConntrackEntry, strange, err error) {
	text, err := c.Call("dpctl/dump-conntrack", "zone="+strconv.Itoa(int(zone)))
	if err != nil {
		return nil, nil, err
	}
	entries, strange = ParseConntrack(text)
	return entries, strange, nil
}

// ParseConntrack parses the lines of dpctl/dump-conntrack, such as
//
//	tcp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=80),reply=(src=…,dst=…,sport=80,dport=8),zone=5,mark=5,protoinfo=(state=SYN_SENT)
//
// An entry of a protocol without ports has port 0. Labels and states are left out. A line that cannot be read is left
// out, too, for whoever sends a packet decides what is in conntrack; strange is what is wrong with the first such line.
func ParseConntrack(text string) (entries []datapath.ConntrackEntry, strange error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		e, err := parseEntry(line)
		if err != nil {
			if strange == nil {
				strange = fmt.Errorf("conntrack entry %.200q: %w", line, err)
			}
			continue
		}
		entries = append(entries, e)
	}
	return entries, strange
}

func parseEntry(line string) (e datapath.ConntrackEntry, err error) {
	for i, item := range splitTop(line) {
		name, val, _ := strings.Cut(item, "=")
		switch {
		case i == 0:
			var ok bool
			if e.Proto, ok = protoNumbers[name]; !ok {
				n, err := strconv.ParseUint(name, 10, 8)
				if err != nil {
					return e, fmt.Errorf("protocol %q is not known", name)
				}
				e.Proto = uint8(n)
			}
		case name == "orig":
			e.OrigSrc, e.OrigDst, err = parseTuple(val)
		case name == "reply":
			e.ReplySrc, e.ReplyDst, err = parseTuple(val)
		case name == "zone":
			var n uint64
			n, err = strconv.ParseUint(val, 10, 16)
			e.Zone = uint16(n)
		case name == "mark":
			var n uint64
			n, err = strconv.ParseUint(val, 0, 32)
			e.Mark = uint32(n)
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}

func parseTuple(s string) (src, dst netip.AddrPort, err error) {
	var a, b netip.Addr
	var p, q uint64
	for item := range strings.SplitSeq(strings.Trim(s, "()"), ",") {
		name, val, _ := strings.Cut(item, "=")
		switch name {
		case "src":
			a, err = netip.ParseAddr(val)
		case "dst":
			b, err = netip.ParseAddr(val)
		case "sport":
			p, err = strconv.ParseUint(val, 10, 16)
		case "dport":
			q, err = strconv.ParseUint(val, 10, 16)
		}
		if err != nil {
			return src, dst, err
		}
	}
	return netip.AddrPortFrom(a, uint16(p)), netip.AddrPortFrom(b, uint16(q)), nil
}

// splitTop splits at commas outside parentheses.
func splitTop(s string) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, s[start:i])
				start = i + 1
			}
		}
	}
	return append(out, s[start:])
}
