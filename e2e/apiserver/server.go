package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"towtank/sim"
	"towtank/sim/kube"
)

// Config says what a server serves. The zero value of a field is its default.
type Config struct {
	// IPv4 and IPv6 are the families of the cluster; neither: IPv4.
	IPv4, IPv6 bool
	// ServiceCIDRs are the networks of cluster IPs, as in kube.Config.
	ServiceCIDRs []netip.Prefix
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// History is how many writes of each kind a watch can go back to, at least 1; default 1,000. A watch from
	// before that is answered with 410 Gone.
	History int
	// Bookmark is how often a watch that asked for them gets a bookmark; default one minute.
	Bookmark time.Duration
	// NoStreamedLists has the server know nothing of sendInitialEvents, as one without that feature (KEP-3157).
	NoStreamedLists bool
	// Unanswered is how long a request that a fault leaves without an answer hangs before it is told so
	// (504 Timeout); default 2 s, as in the simulator.
	Unanswered time.Duration
	// Kill, if set, ends a client's process: faults of the modes die and die-after call it before they cut the
	// connection.
	Kill func(client string)
}

func (c *Config) defaults() {
	if !c.IPv4 && !c.IPv6 {
		c.IPv4 = true
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.History <= 0 {
		c.History = 1000
	}
	if c.Bookmark <= 0 {
		c.Bookmark = time.Minute
	}
	if c.Unanswered <= 0 {
		c.Unanswered = 2 * time.Second
	}
}

// Server is an API server. Its methods may be called from any goroutine, but for what runs inside Do.
type Server struct {
	cfg  Config
	http http.Server
	ca   []byte        // PEM
	done chan struct{} // closed by Close
	once sync.Once

	mu        sync.Mutex
	cluster   *kube.Cluster
	histories map[kube.Kind]*history
	changed   chan struct{} // closed and replaced at every write, and when a gate changes
	clients   map[string]*client
	byToken   map[string]*client
	events    eventStore
}

// client is somebody who makes requests.
type client struct {
	name, token string
	gates       map[kube.Kind]*gate
	cut         bool // the server cannot be reached
	conns       map[net.Conn]bool
	faults      sim.Faults
	unanswered  int // requests that a fault keeps waiting
	journal     []sim.Entry
	marked      int // entries before the last Mark
	views       map[kube.Kind]*view
	access      map[Access]bool
	account     string // a ServiceAccount; empty: the client may do everything
	grants      []Grant
}

// New returns a server that does not listen yet.
func New(cfg Config) (*Server, error) {
	cfg.defaults()
	s := &Server{
		cfg: cfg, done: make(chan struct{}), histories: map[kube.Kind]*history{}, changed: make(chan struct{}),
		clients: map[string]*client{}, byToken: map[string]*client{}, events: newEventStore(),
	}
	var err error
	s.cluster, err = kube.New(kube.Config{Now: cfg.Now, IPv4: cfg.IPv4, IPv6: cfg.IPv6, ServiceCIDRs: cfg.ServiceCIDRs})
	if err != nil {
		return nil, err
	}
	for _, k := range kube.AllKinds() {
		s.histories[k] = newHistory(cfg.History, s.cluster.List(k))
	}
	s.cluster.AddObserver(s.observe)
	cert, ca, err := certificate()
	if err != nil {
		return nil, err
	}
	s.ca = ca
	s.http = http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ConnState:   s.connState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    log.New(io.Discard, "", 0), // of clients that were killed in the middle of a handshake
	}
	return s, nil
}

// Do runs f alone with the cluster: as kubectl, the kubelets and the controllers of a scenario do. What it
// writes is on the watches when Do returns. f must neither keep the cluster nor call the Server.
func (s *Server) Do(f func(c *kube.Cluster)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.cluster)
}

// observe sees every write, under the lock.
func (s *Server) observe(e kube.Event) {
	s.histories[e.Kind].add(e)
	s.tell()
}

// tell has every watch and every request that waits look again. It needs the lock.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Serve answers on a listener, by TLS, until Close; it returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("API server on %s: %w", l.Addr(), err)
	}
	return nil
}

// Close ends the server and cuts every connection.
func (s *Server) Close() error {
	s.once.Do(func() { close(s.done) })
	return s.http.Close()
}

// Disconnect breaks every connection of a client, without a word, as a restart of the server does. What was
// sent stays sent; the client may come back at once.
func (s *Server) Disconnect(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.client(client).conns {
		_ = conn.Close() // it may be gone already
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

// connState forgets connections that are gone.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		delete(c.conns, conn)
	}
}

// client returns a client by name, and makes it known if it is not. It needs the lock.
func (s *Server) client(name string) *client {
	c := s.clients[name]
	if c == nil {
		c = &client{name: name, token: token(), conns: map[net.Conn]bool{}, gates: map[kube.Kind]*gate{}, views: map[kube.Kind]*view{}, access: map[Access]bool{}}
		s.clients[name], s.byToken[c.token] = c, c
	}
	return c
}

func token() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// RESTConfig returns how a client of a name (a node's, sim.ControllerName, any other) reaches the server at
// a URL: https://HOST:PORT.
func (s *Server) RESTConfig(client, url string) *rest.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &rest.Config{
		Host: url, BearerToken: s.client(client).token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca, ServerName: serverName},
	}
}

// WriteKubeconfig writes a kubeconfig file of a client, for programs: --kubeconfig PATH.
func (s *Server) WriteKubeconfig(path, client, url string) error {
	s.mu.Lock()
	token := s.client(client).token
	s.mu.Unlock()
	const name = "towtank"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: s.ca, TLSServerName: serverName}
	c.AuthInfos[client] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: client}
	c.CurrentContext = name
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", client, err)
	}
	return nil
}

// Clients returns the names of all clients, sorted.
func (s *Server) Clients() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for name := range s.clients {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
