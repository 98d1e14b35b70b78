//go:build linux

package linux

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"towtank/datapath"
	"towtank/datapath/host"
)

// healthServer answers on the port of a health check.
type healthServer struct {
	host.Health
	servers []*http.Server
}

// ServeHTTP implements http.Handler.
func (s *healthServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status, header, body := s.Answer()
	for k, v := range header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (s *healthServer) close() {
	for _, srv := range s.servers {
		_ = srv.Close()
	}
}

// putHealth opens the listeners from the worker's thread: they belong to the namespace of the thread
// that made the socket.
func (h *Host) putHealth(o host.Health) error {
	if old := h.health[o.Port]; old != nil {
		if old.Health == o {
			return nil
		}
		h.deleteHealth(o.Port)
	}
	s := &healthServer{Health: o}
	addrs := []string{""}
	if o.Addrs != "" {
		addrs = strings.Split(o.Addrs, ",")
	}
	for _, a := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(a, strconv.Itoa(int(o.Port))))
		if err != nil {
			s.close()
			return err
		}
		srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
		s.servers = append(s.servers, srv)
		go func() {
			if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				_ = l.Close()
			}
		}()
	}
	h.health[o.Port] = s
	return nil
}

func (h *Host) deleteHealth(port uint16) {
	if s := h.health[port]; s != nil {
		s.close()
		delete(h.health, port)
	}
}

func (h *Host) dumpHealth(map[int]string) ([]datapath.Object, error) {
	var out []datapath.Object
	for _, port := range slices.Sorted(maps.Keys(h.health)) {
		out = append(out, h.health[port].Health)
	}
	return out, nil
}
