//go:build linux

package linux

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"towtank/datapath"
)

// Links and addresses are told of by two subscriptions, so that either may come first. A link of index 7 is made under
// another name, gets its own and an address, and goes: whatever the order, the caller hears of the address under the
// link's own name only, and hears that it is gone.
func TestAddressesOfALinkThatIsBeingMade(t *testing.T) {
	const made = "towtmp-0123abcd"
	p := netip.MustParsePrefix("172.18.0.50/24")
	for _, c := range []struct {
		steps string // link NAME, kernel NAME (what it answers), add, del, gone
		want  []string
	}{
		{"link:" + made + " link:v kernel:v add del gone", []string{"+v", "+172.18.0.50@v", "-172.18.0.50@v", "-v"}},
		{"link:" + made + " kernel:v add link:v del gone", []string{"+172.18.0.50@v", "+v", "-172.18.0.50@v", "-v"}},
		{"kernel:v add link:" + made + " link:v del gone", []string{"+172.18.0.50@v", "+v", "-172.18.0.50@v", "-v"}},
		{"kernel:v add link:" + made + " link:v gone del", []string{"+172.18.0.50@v", "+v", "-172.18.0.50@v", "-v"}},
		{"link:" + made + " kernel:" + made + " add kernel:v link:v gone", []string{"+172.18.0.50@v", "+v", "-172.18.0.50@v", "-v"}},
		{"link:" + made + " kernel:" + made + " add del link:v gone", []string{"+v", "-v"}},
		{"link:" + made + " link:v gone kernel:none add del", []string{"+v", "-v"}},
		{"kernel:silent add link:v del gone", []string{"+172.18.0.50@v", "+v", "-172.18.0.50@v", "-v"}},
		{"link:" + made + " gone", nil},
		// Somebody renames a link.
		{"link:a kernel:a add link:b gone", []string{"+a", "+172.18.0.50@a", "+172.18.0.50@b", "-172.18.0.50@a", "-a", "+b", "-172.18.0.50@b", "-b"}},
	} {
		var got []string
		sign := map[bool]string{true: "+", false: "-"}
		kernel := "none"
		w := newWatched(func(int) (string, bool) {
			if kernel == "silent" {
				return "", true
			}
			return kernel, kernel != "none"
		}, func(e datapath.AddressEvent) {
			got = append(got, fmt.Sprintf("%s%s@%s", sign[e.Present], e.Addr, e.Link))
		}, func(e datapath.LinkEvent) { got = append(got, sign[e.Present]+e.Name) })
		last := made
		for _, step := range fields(c.steps) {
			switch step[0] {
			case "link":
				last = step[1]
				w.link(&netlink.LinkAttrs{Index: 7, Name: step[1], Flags: net.FlagUp}, true)
			case "kernel":
				kernel = step[1]
			case "add", "del":
				w.address(7, p, step[0] == "add")
			case "gone":
				w.link(&netlink.LinkAttrs{Index: 7, Name: last}, false)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q\nwant\n%q", c.steps, got, c.want)
		}
	}
}

// One address may be there with several prefix lengths.
func TestAddressWithTwoPrefixLengths(t *testing.T) {
	var got []datapath.AddressEvent
	w := newWatched(nil, func(e datapath.AddressEvent) { got = append(got, e) }, func(datapath.LinkEvent) {})
	w.link(&netlink.LinkAttrs{Index: 7, Name: "v"}, true)
	long, short := netip.MustParsePrefix("172.18.0.50/32"), netip.MustParsePrefix("172.18.0.50/24")
	w.address(7, long, true)
	w.address(7, short, true)
	told := len(got)
	w.address(7, short, false)
	if len(got) != told {
		t.Errorf("told of %v while the address is there", got[told:])
	}
	w.address(7, long, false)
	if want := (datapath.AddressEvent{Addr: long.Addr(), Link: "v"}); got[len(got)-1] != want {
		t.Errorf("told of %v at last, want %v", got[len(got)-1], want)
	}
}

func fields(steps string) (out [][2]string) {
	for f := range strings.FieldsSeq(steps) {
		name, arg, _ := strings.Cut(f, ":")
		out = append(out, [2]string{name, arg})
	}
	return out
}
