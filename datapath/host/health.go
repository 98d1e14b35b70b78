package host

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath"
)

// Health is the health check listener of a Service with policy Local: it answers 200 if LocalEndpoints
// is over 0 and the node serves them, else 503 (Kubernetes, Service.spec.healthCheckNodePort).
type Health struct {
	Port           uint16
	Service        string // namespace/name
	LocalEndpoints int
	// Unhealthy says that the node does not serve what it should, whatever endpoints it has.
	Unhealthy bool
	// Addrs limits the addresses that it listens on: sorted, joined by commas; "" is all.
	Addrs string
}

// NewHealth checks h and sorts its addresses.
func NewHealth(h Health) (Health, error) {
	bad := func(format string, args ...any) (Health, error) {
		return Health{}, fmt.Errorf("health %d: %w", h.Port, fmt.Errorf(format, args...))
	}
	if h.Port == 0 {
		return bad("port: want 1 to 65535")
	}
	if err := checkWord("service", h.Service, 512); err != nil {
		return bad("%w", err)
	}
	if h.LocalEndpoints < 0 {
		return bad("local endpoints %d: want 0 or more", h.LocalEndpoints)
	}
	if h.Addrs != "" {
		var addrs []netip.Addr
		for s := range strings.SplitSeq(h.Addrs, ",") {
			a, err := netip.ParseAddr(s)
			if err != nil {
				return bad("address %q: want an IP address", s)
			}
			addrs = append(addrs, a)
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		var s []string
		for _, a := range slices.Compact(addrs) {
			s = append(s, a.String())
		}
		h.Addrs = strings.Join(s, ",")
	}
	return h, nil
}

// ParseHealth reads the text of a Health.
func ParseHealth(text string) (Health, error) {
	var h Health
	w := newWords(text)
	for !w.done() {
		var err error
		var n uint64
		switch s := w.next(); s {
		case "health":
			n, err = w.number(s, 16)
			h.Port = uint16(n)
		case "service":
			h.Service, err = w.value(s)
		case "local":
			n, err = w.number(s, 31)
			h.LocalEndpoints = int(n)
		case "unhealthy":
			h.Unhealthy = true
		case "addrs":
			h.Addrs, err = w.value(s)
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Health{}, fmt.Errorf("health: %w", err)
		}
	}
	return NewHealth(h)
}

// Kind returns datapath.KindHealth.
func (Health) Kind() datapath.Kind { return datapath.KindHealth }

// Key is the port.
func (h Health) Key() datapath.Key {
	return datapath.Key{Kind: datapath.KindHealth, Name: strconv.Itoa(int(h.Port))}
}

// String returns the text, as "health 30500 service default/web local 2".
func (h Health) String() string {
	s := fmt.Sprintf("health %d service %s local %d", h.Port, h.Service, h.LocalEndpoints)
	if h.Unhealthy {
		s += " unhealthy"
	}
	if h.Addrs != "" {
		s += " addrs " + h.Addrs
	}
	return s
}

// Answer returns what the listener answers: the status, the header fields and the body, as kube-proxy's does
// (pkg/proxy/healthcheck).
func (h Health) Answer() (status int, header map[string]string, body string) {
	status = http.StatusOK
	if h.LocalEndpoints == 0 || h.Unhealthy {
		status = http.StatusServiceUnavailable
	}
	ns, name, _ := strings.Cut(h.Service, "/")
	header = map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
		"X-Load-Balancing-Endpoint-Weight": strconv.Itoa(h.LocalEndpoints),
	}
	return status, header, fmt.Sprintf("{\"service\":{\"namespace\":%q,\"name\":%q},\"localEndpoints\":%d,\"serviceProxyHealthy\":%t}", ns, name, h.LocalEndpoints, !h.Unhealthy)
}
