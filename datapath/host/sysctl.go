package host

import (
	"fmt"
	"strings"

	"towtank/datapath"
)

// Sysctl is a setting under net. Deleting it restores the value that it had before.
type Sysctl struct {
	// Name as sysctl writes it; a dot inside an interface name is a slash, as in
	// net.ipv4.conf.ext/10.rp_filter.
	Name  string
	Value string
}

// NewSysctl checks s.
func NewSysctl(s Sysctl) (Sysctl, error) {
	if !strings.HasPrefix(s.Name, "net.") {
		return Sysctl{}, fmt.Errorf("sysctl %q: want a name that begins with \"net.\"", s.Name)
	}
	if err := checkWord("sysctl", s.Name, 255); err != nil {
		return Sysctl{}, err
	}
	s.Value = strings.Join(strings.Fields(s.Value), "\t")
	if s.Value == "" {
		return Sysctl{}, fmt.Errorf("sysctl %s: no value", s.Name)
	}
	return s, nil
}

// SysctlName returns the name of a per-link setting, such as ("ipv4", "ext.10", "rp_filter").
func SysctlName(family, link, setting string) string {
	return "net." + family + ".conf." + strings.ReplaceAll(link, ".", "/") + "." + setting
}

// ParseSysctl reads "NAME = VALUE".
func ParseSysctl(text string) (Sysctl, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return Sysctl{}, fmt.Errorf("sysctl %q: want NAME = VALUE", text)
	}
	return NewSysctl(Sysctl{strings.TrimSpace(name), value})
}

// Kind returns datapath.KindSysctl.
func (Sysctl) Kind() datapath.Kind { return datapath.KindSysctl }

// Key is the name.
func (s Sysctl) Key() datapath.Key { return datapath.Key{Kind: datapath.KindSysctl, Name: s.Name} }

// String returns "NAME = VALUE".
func (s Sysctl) String() string { return s.Name + " = " + s.Value }
