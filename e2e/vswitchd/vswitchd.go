// Package vswitchd runs an Open vSwitch of its own: ovsdb-server and ovs-vswitchd in a directory of their own,
// beside any other that runs. With the dummy datapath any user can, and time is virtual once it is stopped.
package vswitchd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"towtank/datapath"
	"towtank/datapath/jsonrpc"
	"towtank/datapath/ovsdb"
	"towtank/datapath/ovsdb/database"
	"towtank/datapath/unixctl"
	"towtank/e2e/cleanup"
)

// maxSocketPath is the longest path of a unix socket (unix(7)).
const maxSocketPath = 107

// startTimeout is how long the processes may take until they listen.
const startTimeout = 20 * time.Second

// schemas are where distributions put the database's schema.
var schemas = []string{"/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"}

// Server is a running pair of processes.
type Server struct {
	dir         string
	db, switchd *exec.Cmd
	ctl         *unixctl.Client
	bridges     []string
	real        bool
	forget      func() // the signals
}

// Available says what is missing on this machine, nil if nothing is.
func Available() error {
	for _, p := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd"} {
		if _, err := program(p); err != nil {
			return err
		}
	}
	_, err := schema()
	return err
}

// program finds a program, in sbin too: it is not in the PATH of every user.
func program(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, d := range []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/lib/openvswitch-switch"} {
		if p := filepath.Join(d, name); syscall.Access(p, 1) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed (Debian: openvswitch-switch)", name)
}

func schema() (string, error) {
	for _, p := range schemas {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not there (Debian: openvswitch-common)", schemas[0])
}

// Start starts the processes with the dummy datapath in a new directory. Close removes it.
func Start() (*Server, error) { return start(false) }

// StartReal starts the processes for real devices, as root, in the network namespace of the calling thread. They
// end with that thread.
func StartReal() (*Server, error) { return start(true) }

func start(real bool) (*Server, error) {
	if err := cleanup.Ending(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", cleanup.Prefix(os.Getpid())) // the name says whose it is
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, real: real}
	s.forget, err = cleanup.OnSignal(func() {
		s.kill()
		os.RemoveAll(s.dir)
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if n := len(s.path("ovs-vswitchd.ctl")) + 20; n > maxSocketPath {
		s.Close()
		return nil, fmt.Errorf("%s: the sockets' paths would have about %d bytes, at most %d are allowed: set TMPDIR to a shorter one", dir, n, maxSocketPath)
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// Database returns the path of the database's socket.
func (s *Server) Database() string { return s.path("db.sock") }

// OpenFlow returns the path of a bridge's management socket.
func (s *Server) OpenFlow(bridge string) string { return s.path(bridge + ".mgmt") }

// Dir returns the directory of the processes' sockets and of the database.
func (s *Server) Dir() string { return s.dir }

// Control returns the path of ovs-vswitchd's control socket: with real devices its usual one, which has another
// name after each start.
func (s *Server) Control() string {
	if s.real {
		return s.path(fmt.Sprintf("ovs-vswitchd.%d.ctl", s.PID()))
	}
	return s.path("ovs-vswitchd.ctl")
}

// Socket returns the path of a socket in the directory of the processes.
func (s *Server) Socket(name string) string { return s.path(name) }

// PID returns the process id of ovs-vswitchd.
func (s *Server) PID() int { return s.switchd.Process.Pid }

// DatabasePID returns the process id of ovsdb-server.
func (s *Server) DatabasePID() int { return s.db.Process.Pid }

func (s *Server) start() error {
	sch, err := schema()
	if err != nil {
		return err
	}
	tool, err := program("ovsdb-tool")
	if err != nil {
		return err
	}
	create := exec.Command(tool, "create", s.path("conf.db"), sch)
	create.Env = s.env()
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("ovsdb-tool create: %w: %s", err, out)
	}
	if err := s.startDatabase(); err != nil {
		return err
	}
	conn, err := s.dial(s.db, s.Database())
	if err != nil {
		return err
	}
	rpc := jsonrpc.New(conn, nil)
	defer rpc.Close()
	if _, err := rpc.Call("transact", []any{database.Name, map[string]any{"op": "insert", "table": "Open_vSwitch", "row": map[string]any{}}}); err != nil {
		return fmt.Errorf("ovsdb-server: %w", err)
	}
	return s.startSwitch()
}

func (s *Server) startDatabase() (err error) {
	s.db, err = s.run("ovsdb-server", s.path("conf.db"), "--remote=punix:"+s.Database(), "--unixctl="+s.path("ovsdb-server.ctl"))
	return err
}

func (s *Server) startSwitch() (err error) {
	args := []string{"unix:" + s.Database(), "--pidfile=" + s.path("ovs-vswitchd.pid")}
	if !s.real {
		args = append(args, "--enable-dummy", "--disable-system", "--unixctl="+s.Control())
	}
	if s.switchd, err = s.run("ovs-vswitchd", args...); err != nil {
		return err
	}
	conn, err := s.dial(s.switchd, s.Control())
	if err != nil {
		return err
	}
	conn.Close()
	s.ctl, err = unixctl.Dial(s.Control())
	return err
}

func (s *Server) env() []string {
	return append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_DBDIR="+s.dir, "OVS_LOGDIR="+s.dir, "OVS_SYSCONFDIR="+s.dir)
}

// run starts a program that ends with us, whatever way that is.
func (s *Server) run(name string, args ...string) (*exec.Cmd, error) {
	p, err := program(name)
	if err != nil {
		return nil, err
	}
	c := exec.Command(p, append(args, "-vconsole:emer", "-vsyslog:off", "-vfile:warn", "--log-file="+s.path(name+".log"), "--no-chdir")...)
	c.Env = s.env()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // a Ctrl-C is for us alone
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// dial connects to a socket as soon as the process listens, which only trying tells.
func (s *Server) dial(c *exec.Cmd, path string) (net.Conn, error) {
	for end := time.Now().Add(startTimeout); ; time.Sleep(2 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn, nil
		}
		if exited(c) || time.Now().After(end) {
			log, _ := os.ReadFile(s.path(filepath.Base(c.Path) + ".log"))
			return nil, fmt.Errorf("%s does not listen on %s: %w\n%s", filepath.Base(c.Path), path, err, log)
		}
	}
}

// exited reports whether the process has ended, without waiting for it.
func exited(c *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

// Call runs a command of ovs-vswitchd's control socket.
func (s *Server) Call(command string, args ...string) (string, error) {
	return s.ctl.Call(command, args...)
}

// Round returns when ovs-vswitchd's main loop has begun a new round. A loop takes connections before it runs
// commands, so a connection that is made after an answer is for a later round; on one connection it would
// answer several commands in one.
func (s *Server) Round() error {
	c, err := unixctl.Dial(s.Control())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Call("version")
	return err
}

// AddBridge makes a bridge on the dummy datapath that forwards nothing by itself.
func (s *Server) AddBridge(name string) error { return s.addBridge(name, "secure", nil) }

// KnowBridge notes a bridge that was made by other means, for StartAgain.
func (s *Server) KnowBridge(name string) error {
	s.bridges = append(s.bridges, name)
	return s.waitBridges()
}

// AddPlainBridge makes a bridge on the dummy datapath that is an ordinary switch, with other_config.
func (s *Server) AddPlainBridge(name string, other map[string]string) error {
	return s.addBridge(name, "standalone", other)
}

func (s *Server) addBridge(name, failMode string, other map[string]string) error {
	conn, err := net.Dial("unix", s.Database())
	if err != nil {
		return err
	}
	rpc := jsonrpc.New(conn, nil)
	defer rpc.Close()
	pairs := [][2]string{}
	for k, v := range other {
		pairs = append(pairs, [2]string{k, v})
	}
	raw, err := rpc.Call("transact", []any{
		database.Name,
		map[string]any{"op": "insert", "table": "Interface", "row": map[string]any{"name": name, "type": "internal"}, "uuid-name": "i"},
		map[string]any{"op": "insert", "table": "Port", "row": map[string]any{"name": name, "interfaces": []any{"named-uuid", "i"}}, "uuid-name": "p"},
		map[string]any{"op": "insert", "table": "Bridge", "uuid-name": "b", "row": map[string]any{
			"name": name, "datapath_type": "dummy", "fail_mode": failMode, "ports": []any{"named-uuid", "p"},
			"protocols": []any{"set", []any{"OpenFlow15"}}, "other_config": []any{"map", pairs},
		}},
		map[string]any{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{[]any{"bridges", "insert", []any{"set", []any{[]any{"named-uuid", "b"}}}}}},
	})
	if err != nil {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	if strings.Contains(string(raw), `"error"`) {
		return fmt.Errorf("add bridge %s: %s", name, raw)
	}
	s.bridges = append(s.bridges, name)
	return s.waitBridges()
}

// waitBridges returns when ovs-vswitchd listens for all bridges.
func (s *Server) waitBridges() error {
	for _, b := range s.bridges {
		mgmt, err := s.dial(s.switchd, s.OpenFlow(b))
		if err != nil {
			return err
		}
		mgmt.Close()
	}
	return nil
}

// AddPort adds a port to a bridge and returns when ovs-vswitchd has it.
func (s *Server) AddPort(bridge, name, kind string, options map[string]string) error {
	c, err := database.Dial("unix", s.Database(), bridge, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := ovsdb.NewPort(ovsdb.PortSpec{Name: name, Type: kind, Options: options})
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	c.Apply([]datapath.Op{{New: p}}, func(r []datapath.OpResult) { result <- r[0].Err })
	if err := <-result; err != nil {
		return err
	}
	c.Sync(func(err error) { result <- err })
	return <-result
}

// Kill kills ovs-vswitchd (SIGKILL); StartAgain starts it.
func (s *Server) Kill() error {
	s.ctl.Close()
	err := s.switchd.Process.Kill()
	_ = s.switchd.Wait()
	return err
}

// PowerOff kills both processes; what is in the database stays.
func (s *Server) PowerOff() error {
	err := errors.Join(s.Kill(), s.db.Process.Kill())
	_ = s.db.Wait()
	return err
}

// PowerOn starts both processes after PowerOff.
func (s *Server) PowerOn() error {
	os.Remove(s.Database())
	os.Remove(s.path("ovsdb-server.ctl"))
	if err := s.startDatabase(); err != nil {
		return err
	}
	conn, err := s.dial(s.db, s.Database())
	if err != nil {
		return err
	}
	conn.Close()
	return s.StartAgain()
}

// Running reports whether ovs-vswitchd runs.
func (s *Server) Running() bool { return s.switchd != nil && s.switchd.ProcessState == nil }

// StartAgain starts ovs-vswitchd after Kill.
func (s *Server) StartAgain() error {
	os.Remove(s.Control())
	for _, b := range s.bridges {
		os.Remove(s.OpenFlow(b))
	}
	if err := s.startSwitch(); err != nil {
		return err
	}
	return s.waitBridges()
}

// Close ends the processes and removes the directory.
func (s *Server) Close() {
	if s.ctl != nil {
		s.ctl.Close()
	}
	s.kill()
	for _, c := range []*exec.Cmd{s.switchd, s.db} {
		if c != nil {
			_ = c.Wait()
		}
	}
	os.RemoveAll(s.dir)
	s.forget()
}

// kill kills the processes that run.
func (s *Server) kill() {
	for _, c := range []*exec.Cmd{s.switchd, s.db} {
		if c != nil && c.Process != nil {
			_ = c.Process.Kill()
		}
	}
}
