package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath"
	"towtank/datapath/ovsdb"
)

// execVsctl has somebody type ovs-vsctl: commands with -- between them, which are done together or not at all.
func (n *Node) execVsctl(words []string) (string, error) {
	t := &vsctl{n: n, ports: map[string]*ovsdb.PortSpec{}}
	for len(words) > 0 {
		command := words
		if i := slices.Index(words, "--"); i >= 0 {
			command, words = words[:i], words[i+1:]
		} else {
			words = nil
		}
		if len(command) == 0 {
			continue
		}
		if err := t.do(command); err != nil {
			return "", fmt.Errorf("ovs-vsctl: %w", err)
		}
	}
	if !t.any {
		return "", fmt.Errorf("ovs-vsctl: no command")
	}
	return t.out.String(), t.commit()
}

// vsctl is one transaction of ovs-vsctl.
type vsctl struct {
	n     *Node
	out   strings.Builder
	any   bool
	order []string                   // ports that change, in the order of the commands
	ports map[string]*ovsdb.PortSpec // as they are to be, nil for one that goes
}

// port returns a port as the commands so far have left it; nil if it is not there.
func (t *vsctl) port(name string) *ovsdb.PortSpec {
	if s, changed := t.ports[name]; changed {
		return s
	}
	st := t.n.sw.PortByName(name)
	if st == nil || st.Port == nil {
		return nil
	}
	p := st.Port
	return &ovsdb.PortSpec{
		Name: name, Type: p.Type(), Options: p.Options(), ExternalIDs: p.ExternalIDs(), OFPortRequest: p.OFPortRequest(),
		MAC: p.MAC(), Tag: p.Tag(), MTURequest: p.MTURequest(),
	}
}

func (t *vsctl) set(name string, s *ovsdb.PortSpec) {
	if _, changed := t.ports[name]; !changed {
		t.order = append(t.order, name)
	}
	t.ports[name] = s
}

// commit writes what the commands have changed.
func (t *vsctl) commit() error {
	var ops []datapath.Op
	for _, name := range t.order {
		var op datapath.Op
		if st := t.n.sw.PortByName(name); st != nil && st.Port != nil {
			op.Old = st.Port
		}
		if s := t.ports[name]; s != nil {
			p, err := ovsdb.NewPort(*s)
			if err != nil {
				return err
			}
			op.New = p
		}
		if op.Old != nil || op.New != nil {
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	return one(t.n.applyPorts(ops))
}

// do does one command: its options, its name, its arguments.
func (t *vsctl) do(words []string) error {
	option := ""
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		switch {
		case words[0] == "--may-exist", words[0] == "--if-exists":
			option = words[0]
		case words[0] == "--no-wait", strings.HasPrefix(words[0], "--timeout="): // it never waits
		default:
			return fmt.Errorf("option %s is not modelled", words[0])
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return fmt.Errorf("no command after %s", option)
	}
	t.any = true
	name, args := words[0], words[1:]
	if allowed := map[string]string{"add-port": "--may-exist", "del-port": "--if-exists", "set": "--if-exists"}[name]; option != "" && option != allowed {
		return fmt.Errorf("'%s' command has no '%s' option", name, option)
	}
	switch name {
	case "show":
		for _, st := range t.n.sw.Ports() {
			fmt.Fprintf(&t.out, "%s ofport=%d type=%q\n", st.Name, st.OFPort, st.Type)
		}
		return nil
	case "list-ports":
		if err := onBridge(args, 1); err != nil {
			return err
		}
		for _, st := range t.n.sw.Ports() {
			if st.Port != nil {
				t.out.WriteString(st.Name + "\n")
			}
		}
		return nil
	case "add-port":
		return t.addPort(args, option != "")
	case "del-port":
		if len(args) == 2 {
			if err := onBridge(args, 2); err != nil {
				return err
			}
			args = args[1:]
		}
		if len(args) != 1 {
			return fmt.Errorf("del-port: want [%s] PORT", Bridge)
		}
		if t.port(args[0]) == nil {
			if option != "" {
				return nil
			}
			return fmt.Errorf("no port named %s", args[0])
		}
		t.set(args[0], nil)
		return nil
	case "set":
		return t.setColumns(args, option != "")
	}
	return fmt.Errorf("%s is not modelled; there are show, list-ports, add-port, del-port, set", name)
}

func onBridge(args []string, want int) error {
	switch {
	case len(args) != want:
		return fmt.Errorf("found %d arguments, want %d", len(args), want)
	case args[0] != Bridge:
		return fmt.Errorf("no bridge named %s", args[0])
	}
	return nil
}

// addPort is add-port BRIDGE PORT [COLUMN=VALUE…], the columns being those of the table Port.
func (t *vsctl) addPort(args []string, mayExist bool) error {
	if len(args) < 2 {
		return fmt.Errorf("add-port: want %s PORT", Bridge)
	}
	if err := onBridge(args[:2], 2); err != nil {
		return err
	}
	name := args[1]
	if t.port(name) != nil {
		if mayExist {
			return nil
		}
		return fmt.Errorf("cannot create a port named %s because a port named %s already exists on bridge %s", name, name, Bridge)
	}
	t.set(name, &ovsdb.PortSpec{Name: name})
	return t.columns("port", name, args[2:])
}

// setColumns is set TABLE RECORD COLUMN=VALUE….
func (t *vsctl) setColumns(args []string, ifExists bool) error {
	if len(args) < 3 {
		return fmt.Errorf("set: want TABLE RECORD COLUMN=VALUE…")
	}
	table, name := strings.ToLower(args[0]), args[1]
	if table != "port" && table != "interface" {
		return fmt.Errorf("set %s is not modelled; there are Port, Interface", args[0])
	}
	s := t.port(name)
	if s == nil {
		if ifExists {
			return nil
		}
		return fmt.Errorf("no row %q in table %s", name, args[0])
	}
	t.set(name, s)
	return t.columns(table, name, args[2:])
}

// interfaceTypes are those that the model of the switch knows.
var interfaceTypes = []string{"system", "internal", "geneve", "vxlan"}

// columns sets columns of a port or its interface.
func (t *vsctl) columns(table, name string, words []string) error {
	s := t.ports[name]
	for _, w := range words {
		column, value, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("%s: found %q, allowed: COLUMN=VALUE", name, w)
		}
		column, key, keyed := strings.Cut(column, ":")
		number := func(high uint64) (uint16, error) {
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil || n > high {
				return 0, fmt.Errorf("%s: %s: found %q, allowed: 0 to %d", name, column, value, high)
			}
			return uint16(n), nil
		}
		var err error
		switch at := table + "." + column; {
		case at == "interface.type" && !keyed:
			if !slices.Contains(interfaceTypes, value) {
				return fmt.Errorf("%s: type: found %q, allowed: %s", name, value, strings.Join(interfaceTypes, ", "))
			}
			s.Type = strings.TrimPrefix(value, "system")
		case at == "interface.ofport_request" && !keyed:
			s.OFPortRequest, err = number(ovsdb.MaxRequestedOFPort)
		case at == "interface.options" && keyed:
			s.Options = with(s.Options, key, value)
		case at == "port.tag" && !keyed:
			s.Tag, err = number(4094)
		case at == "port.external_ids" && keyed:
			s.ExternalIDs = with(s.ExternalIDs, key, value)
		default:
			return fmt.Errorf("%s: %s of %s is not modelled; there are type, ofport_request and options:KEY of an Interface, tag and external_ids:KEY of a Port",
				name, column, table)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// with returns the map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
