package ovsdb

import (
	"strings"
	"testing"

	"towtank/datapath"
)

func TestPortTextParsesBack(t *testing.T) {
	for _, s := range []PortSpec{
		{Name: "eth0"},
		{Name: "gw0", Type: "internal", MAC: "0E:00:00:00:01:01", OFPortRequest: 32769},
		{
			Name: "tun0", Type: "geneve", OFPortRequest: 32768,
			Options: map[string]string{"remote_ip": "flow", "key": "flow", "local_ip": "fd00::1"},
		},
		{
			Name: "web-1a2b3c", Tag: 12,
			ExternalIDs: map[string]string{"towtank-unit": "sandbox/1a2b/eth0", "ip-address": "10.10.1.2,fd00::2", "note": `a "b" c\d`, "empty": ""},
		},
	} {
		p, err := NewPort(s)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ParsePort(p.String())
		if err != nil || !datapath.Equal(p, q) {
			t.Errorf("%s\nparses as %v, %v", p, q, err)
		}
		for k, v := range s.ExternalIDs {
			if q.ExternalID(k) != v {
				t.Errorf("%s: external id %s is %q after parsing, was %q", s.Name, k, q.ExternalID(k), v)
			}
		}
	}
}

func TestPortTextIsCanonical(t *testing.T) {
	p, err := ParsePort(`p1 external_ids:b=2 options:y=2 tag=5 external_ids:a="x y" type=system options:x=1 ofport_request=7 mac=0A:00:00:00:00:01`)
	if err != nil {
		t.Fatal(err)
	}
	want := `p1 mac=0a:00:00:00:00:01 ofport_request=7 tag=5 options:x=1 options:y=2 external_ids:a="x y" external_ids:b=2`
	if p.String() != want {
		t.Errorf("\n got %s\nwant %s", p, want)
	}
}

func TestPortRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "want NAME",
		"averyveryverylongname":   "1 to 15 bytes",
		"p1 ofport_request=65280": "65279",
		"p1 tag=4095":             "4094",
		"p1 mac=1:2:3":            "0a:00:00:00:00:01",
		"p1 frob=1":               "not supported",
		"p1 tag=x":                "not a number",
		`p1 external_ids:a="x`:    "quote",
	} {
		if _, err := ParsePort(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}
