package host

import (
	"fmt"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/host"
)

// Exec runs a command that somebody types in the namespace: ip, iptables, ip6tables, iptables-restore
// and ip6tables-restore (their text after the first line), iptables-save, ip6tables-save, ipset,
// sysctl, conntrack. It returns what the command prints. A command, option or value that is not
// modelled is an error that names it.
func (n *Netns) Exec(command string) (out string, err error) {
	n.q.Run(func() { out, err = n.exec(command) })
	if err != nil {
		return out, fmt.Errorf("%s: %s: %w", n.Name(), strings.SplitN(strings.TrimSpace(command), "\n", 2)[0], err)
	}
	return out, nil
}

func (n *Netns) exec(command string) (string, error) {
	line, rest, _ := strings.Cut(strings.TrimLeft(command, " \t\n"), "\n")
	w, err := host.SplitWords(line)
	if err != nil {
		return "", err
	}
	if len(w) == 0 {
		return "", fmt.Errorf("no command")
	}
	a := &args{w: w[1:]}
	switch w[0] {
	case "iptables-restore", "ip6tables-restore":
		return "", n.execRestore(familyOfTool(w[0]), a, rest)
	}
	if strings.TrimSpace(rest) != "" {
		return "", fmt.Errorf("only iptables-restore reads further lines")
	}
	switch w[0] {
	case "ip":
		return n.execIP(a)
	case "iptables", "ip6tables":
		return n.execIptables(familyOfTool(w[0]), a)
	case "iptables-save", "ip6tables-save":
		if err := a.end(); err != nil {
			return "", err
		}
		return n.iptablesSave(familyOfTool(w[0])), nil
	case "ipset":
		return n.execIpset(a)
	case "sysctl":
		return n.execSysctl(a)
	case "conntrack":
		return n.execConntrack(a)
	}
	return "", fmt.Errorf("command not modelled (known: ip, iptables, ip6tables, iptables-restore, ip6tables-restore, iptables-save, ip6tables-save, ipset, sysctl, conntrack)")
}

func familyOfTool(name string) host.Family {
	if strings.HasPrefix(name, "ip6") {
		return host.V6
	}
	return host.V4
}

// args are the words of a command line that are left.
type args struct{ w []string }

func (a *args) done() bool { return len(a.w) == 0 }

func (a *args) next() string {
	if len(a.w) == 0 {
		return ""
	}
	s := a.w[0]
	a.w = a.w[1:]
	return s
}

func (a *args) value(opt string) (string, error) {
	if len(a.w) == 0 {
		return "", fmt.Errorf("nothing after %s", opt)
	}
	return a.next(), nil
}

// flag consumes the option wherever it is.
func (a *args) flag(names ...string) bool {
	i := slices.IndexFunc(a.w, func(s string) bool { return slices.Contains(names, s) })
	if i < 0 {
		return false
	}
	a.w = slices.Delete(slices.Clone(a.w), i, i+1)
	return true
}

func (a *args) end() error {
	if len(a.w) > 0 {
		return fmt.Errorf("%q: not modelled", strings.Join(a.w, " "))
	}
	return nil
}

// verb matches an abbreviation as iproute2 does: the first of the words that it begins.
func verb(s string, words ...string) string {
	if s == "" {
		return ""
	}
	for _, w := range words {
		if strings.HasPrefix(w, s) {
			return w
		}
	}
	return ""
}

func (n *Netns) execSysctl(a *args) (string, error) {
	write := a.flag("-w", "--write")
	quiet := a.flag("-q", "--quiet", "-qw")
	value := a.flag("-n", "--values")
	if a.flag("-a", "--all") {
		var b strings.Builder
		for _, name := range n.sysctlNames() {
			if v, err := n.Sysctl(name); err == nil {
				b.WriteString(name + " = " + v + "\n")
			}
		}
		return b.String(), a.end()
	}
	if a.done() {
		return "", fmt.Errorf("no setting named")
	}
	var b strings.Builder
	for !a.done() {
		s := a.next()
		if strings.HasPrefix(s, "-") {
			return "", fmt.Errorf("option %s: not modelled", s)
		}
		name, v, set := strings.Cut(s, "=")
		if !set && write {
			return "", fmt.Errorf("%q must be of the form name=value", s)
		}
		name = strings.TrimSpace(name)
		if set {
			if err := n.SetSysctl(name, v); err != nil {
				return "", err
			}
		}
		have, err := n.Sysctl(name)
		switch {
		case err != nil:
			return "", err
		case quiet:
		case value:
			b.WriteString(have + "\n")
		default:
			b.WriteString(name + " = " + have + "\n")
		}
	}
	return b.String(), nil
}

func (n *Netns) execConntrack(a *args) (string, error) {
	op := a.next()
	switch op {
	case "-F", "--flush":
		if err := a.end(); err != nil {
			return "", err
		}
		n.ct = newConntrack()
		return "", nil
	case "-L", "--dump", "-D", "--delete":
	default:
		return "", fmt.Errorf("%q: want -L, -D or -F", op)
	}
	match, err := conntrackFilter(a)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	now := n.now()
	for _, c := range n.ct.live(now) {
		if match(c) {
			b.WriteString(c.text(now) + "\n")
			if op == "-D" || op == "--delete" {
				n.ct.remove(c)
			}
		}
	}
	return b.String(), nil
}

// conntrackFilter reads -p, -s, -d, --sport, --dport, -r, -q, -m and their long forms.
func conntrackFilter(a *args) (func(*conn) bool, error) {
	t := datapath.Tuple{}
	var conds []func(*conn) bool
	for !a.done() {
		opt := a.next()
		v, err := a.value(opt)
		if err != nil {
			return nil, err
		}
		switch opt {
		case "-p", "--proto":
			e, err := protoNumber(v)
			if err != nil {
				return nil, err
			}
			t.Proto = e
		case "-s", "--src", "--orig-src", "-d", "--dst", "--orig-dst", "-r", "--reply-src", "-q", "--reply-dst":
			p, err := parsePrefix(v)
			if err != nil {
				return nil, err
			}
			conds = append(conds, func(c *conn) bool {
				switch opt {
				case "-s", "--src", "--orig-src":
					return p.Contains(c.orig.src)
				case "-d", "--dst", "--orig-dst":
					return p.Contains(c.orig.dst)
				case "-r", "--reply-src":
					return p.Contains(c.reply.src)
				}
				return p.Contains(c.reply.dst)
			})
		case "--sport", "--orig-port-src", "--dport", "--orig-port-dst":
			port, err := parseUint(v, 16)
			if err != nil {
				return nil, err
			}
			conds = append(conds, func(c *conn) bool {
				if opt == "--sport" || opt == "--orig-port-src" {
					return c.orig.sport == uint16(port)
				}
				return c.orig.dport == uint16(port)
			})
		case "-m", "--mark":
			m, err := parseUint(v, 32)
			if err != nil {
				return nil, err
			}
			conds = append(conds, func(c *conn) bool { return c.mark == uint32(m) })
		case "-f", "--family":
			if v != "ipv4" && v != "ipv6" {
				return nil, fmt.Errorf("%s %q: want ipv4 or ipv6", opt, v)
			}
			conds = append(conds, func(c *conn) bool { return c.orig.src.Is4() == (v == "ipv4") })
		default:
			return nil, fmt.Errorf("option %s: not modelled", opt)
		}
	}
	return func(c *conn) bool {
		for _, f := range conds {
			if !f(c) {
				return false
			}
		}
		return c.selected(t)
	}, nil
}
