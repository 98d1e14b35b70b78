//go:build linux

package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/host"
)

// sysctlPath turns net.ipv4.conf.ext/10.rp_filter into a path; a slash of the name is a dot of a file.
func sysctlPath(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, "/", ".")
	}
	return "/proc/sys/" + strings.Join(parts, "/")
}

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile(sysctlPath(name))
	return strings.Join(strings.Fields(string(data)), "\t"), err
}

func writeSysctl(name, value string) error {
	return os.WriteFile(sysctlPath(name), []byte(value), 0)
}

func (h *Host) putSysctl(o host.Sysctl) error {
	old, err := readSysctl(o.Name)
	if err != nil {
		return err
	}
	if _, ok := h.state.Sysctls[o.Name]; !ok {
		h.state.Sysctls[o.Name] = old
		if err := h.state.save(); err != nil {
			return err
		}
	}
	if old == o.Value {
		return nil
	}
	if err := writeSysctl(o.Name, o.Value); err != nil {
		return err
	}
	if now, err := readSysctl(o.Name); err != nil || now != o.Value {
		return fmt.Errorf("wrote %q, it is %q: %w", o.Value, now, err)
	}
	return nil
}

func (h *Host) restoreSysctl(o host.Sysctl) error {
	old, ok := h.state.Sysctls[o.Name]
	if !ok {
		return nil
	}
	if err := writeSysctl(o.Name, old); err != nil && !errors.Is(err, fs.ErrNotExist) { // gone with its link
		return err
	}
	delete(h.state.Sysctls, o.Name)
	return h.state.save()
}

func (h *Host) dumpSysctls(map[int]string) ([]datapath.Object, error) {
	var out []datapath.Object
	for _, name := range slices.Sorted(maps.Keys(h.state.Sysctls)) {
		if v, err := readSysctl(name); err == nil {
			out = append(out, host.Sysctl{Name: name, Value: v})
		}
	}
	return out, nil
}
