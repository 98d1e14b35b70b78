package openflow

import (
	"fmt"
	"strconv"
	"strings"
)

// Reserved port numbers (OpenFlow 1.5, 7.2.1).
const (
	PortMax        uint32 = 0xff00 // OVS keeps 16 bits: ordinary ports are below
	PortInPort     uint32 = 0xfffffff8
	PortTable      uint32 = 0xfffffff9
	PortNormal     uint32 = 0xfffffffa
	PortFlood      uint32 = 0xfffffffb
	PortAll        uint32 = 0xfffffffc
	PortController uint32 = 0xfffffffd
	PortLocal      uint32 = 0xfffffffe
)

var reservedPorts = []struct {
	port uint32
	name string
}{
	{PortInPort, "IN_PORT"},
	{PortTable, "TABLE"},
	{PortNormal, "NORMAL"},
	{PortFlood, "FLOOD"},
	{PortAll, "ALL"},
	{PortController, "CONTROLLER"},
	{PortLocal, "LOCAL"},
}

// PortName returns the number, or the name of a reserved port.
func PortName(p uint32) string { return string(appendPort(nil, p)) }

func appendPort(b []byte, p uint32) []byte {
	for _, r := range reservedPorts {
		if r.port == p {
			return append(b, r.name...)
		}
	}
	return strconv.AppendUint(b, uint64(p), 10)
}

// portValue returns the 16-bit number that the field in_port has for a port.
func portValue(p uint32) (uint64, error) {
	if p >= PortMax && p < PortInPort || p == 0xffffffff {
		return 0, fmt.Errorf("port %d: want 0 to %d or a reserved port", p, PortMax-1)
	}
	return uint64(p & 0xffff), nil
}

// portNumber is the inverse of portValue.
func portNumber(v uint64) uint32 {
	if v >= 0xfff8 {
		return uint32(v) | 0xffff0000
	}
	return uint32(v)
}

func parsePort(s string) (uint32, error) {
	for _, r := range reservedPorts {
		if strings.EqualFold(r.name, s) {
			return r.port, nil
		}
	}
	n, err := parseUint("port", s, 32)
	if err != nil {
		return 0, err
	}
	p := uint32(n)
	if p >= 0xfff8 && p <= 0xfffe {
		p |= 0xffff0000
	}
	_, err = portValue(p)
	return p, err
}
