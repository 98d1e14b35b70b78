// Package unixctl talks to the control socket of ovs-vswitchd and ovsdb-server, as ovs-appctl does. It is
// for what neither OpenFlow nor the database offers: conntrack dumps, tunnel neighbours, and the clock and
// ports of the dummy datapath.
package unixctl

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"towtank/datapath/jsonrpc"
)

// callTimeout is how long a command may take. The longest are dumps of conntrack, of seconds.
const callTimeout = time.Minute

// Client is a connection to a control socket.
type Client struct{ conn *jsonrpc.Conn }

// Dial connects to the socket, usually RUNDIR/ovs-vswitchd.PID.ctl.
func Dial(path string) (*Client, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("unixctl: %w", err)
	}
	return &Client{jsonrpc.New(c, nil)}, nil
}

// Call runs a command, such as "dpctl/dump-conntrack", and returns what it prints. One that is not answered within
// a minute ends the connection.
func (c *Client) Call(command string, args ...string) (string, error) {
	if args == nil {
		args = []string{}
	}
	r, err := c.conn.CallWithin(callTimeout, command, args)
	if err != nil {
		return "", fmt.Errorf("unixctl %s %s: %w", command, strings.Join(args, " "), err)
	}
	var s string
	if err := json.Unmarshal(r, &s); err != nil {
		return "", fmt.Errorf("unixctl %s: answer %s is not a text", command, r)
	}
	return s, nil
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }
