package unixctl_test

import (
	"net/netip"
	"strings"
	"testing"

	"towtank/datapath"
	"towtank/datapath/unixctl"
)

// Any Pod can make entries of any protocol, and a line may be one that nobody foresaw: the others are read.
func TestConntrackOfEveryProtocol(t *testing.T) {
	entries, strange := unixctl.ParseConntrack(`
icmp,orig=(src=10.0.0.2,dst=10.0.0.1,id=7,type=8,code=0),reply=(src=10.0.0.1,dst=10.0.0.2,id=7,type=0,code=0),zone=5
igmp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=0,dport=0),reply=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=0),zone=5
tcp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=80),reply=(src=10.0.0.1,dst=10.0.0.2,sport=80,dport=8),zone=5,protoinfo=(state=SYN_SENT)
Unsupported address family: 0. HEX:
00000000  00 00 00 00 00 00 00 00-00 00 00 00 00 00 00 00 |................|
dccp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=80),reply=(src=10.0.0.1,dst=10.0.0.2,sport=80,dport=8),zone=5
47,orig=(src=10.0.0.2,dst=10.0.0.1,sport=0,dport=0),reply=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=0),zone=5
icmpv6,orig=(src=fd00::2,dst=fd00::1,id=7,type=128,code=0),reply=(src=fd00::1,dst=fd00::2,id=7,type=129,code=0),zone=5
sctp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=80),reply=(src=10.0.0.1,dst=10.0.0.2,sport=80,dport=8),zone=5,protoinfo=(state=COOKIE_WAIT,vtag_orig=1,vtag_reply=0)
udplite,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=80),reply=(src=10.0.0.1,dst=10.0.0.2,sport=80,dport=8),zone=5
udp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=53),reply=(src=10.0.0.9,dst=10.0.0.2,sport=5353,dport=8),zone=5,mark=16
`)
	var protos []uint8
	for _, e := range entries {
		protos = append(protos, e.Proto)
	}
	if want := []uint8{1, 2, 6, 33, 47, 58, 132, 136, 17}; string(protos) != string(want) {
		t.Errorf("protocols %v\nwant      %v", protos, want)
	}
	if len(entries) == 0 {
		t.FailNow()
	}
	want := datapath.ConntrackEntry{
		Zone: 5, Proto: 17, OrigSrc: netip.MustParseAddrPort("10.0.0.2:8"), OrigDst: netip.MustParseAddrPort("10.0.0.1:53"),
		ReplySrc: netip.MustParseAddrPort("10.0.0.9:5353"), ReplyDst: netip.MustParseAddrPort("10.0.0.2:8"), Mark: 16,
	}
	if last := entries[len(entries)-1]; last != want {
		t.Errorf("entry %+v\nwant  %+v", last, want)
	}
	if strange == nil || !strings.Contains(strange.Error(), "Unsupported address family") {
		t.Errorf("of the line that cannot be read: %v", strange)
	}
}
