package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"towtank/agent/edge"
)

// DefaultSocket is where the CNI plugin finds the agent.
const DefaultSocket = "/run/towtank/cni.sock"

// CNICall is what the plugin sends: HTTP POST /cni with this as JSON, over a unix socket.
type CNICall struct {
	Command      string            `json:"command"` // CNI_COMMAND
	ContainerID  string            `json:"containerID"`
	Netns        string            `json:"netns"`
	Ifname       string            `json:"ifname"`
	PodNamespace string            `json:"podNamespace"`
	PodName      string            `json:"podName"`
	Prev         *CNIAnswer        `json:"prev,omitempty"`
	Valid        []edge.Attachment `json:"valid,omitempty"`
}

// CNIAnswer is what the agent answers: Code 0 is success.
type CNIAnswer struct {
	Code          int            `json:"code,omitempty"`
	Msg           string         `json:"msg,omitempty"`
	HostInterface string         `json:"hostInterface,omitempty"`
	Ifname        string         `json:"ifname,omitempty"`
	Netns         string         `json:"netns,omitempty"`
	MAC           string         `json:"mac,omitempty"`
	IPs           []netip.Prefix `json:"ips,omitempty"`
	Gateways      []netip.Addr   `json:"gateways,omitempty"`
}

// maxCall is how long a call may be, in bytes.
const maxCall = 1 << 20

// Requests serves CNI calls on a unix socket.
type Requests struct {
	q      *Queue
	handle func(any)
	server *http.Server
	path   string
}

// ServeRequests listens on the socket. A socket that is left from an earlier process is replaced.
func ServeRequests(q *Queue, path string, handle func(any)) (*Requests, error) {
	// Who can make calls can rewire every Pod of the node.
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("CNI %w", err)
	}
	r := &Requests{q: q, handle: handle, path: path}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cni", r.serve)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = r.server.Serve(l) }() // ends with Close
	return r, nil
}

// Close ends the server; calls that are under way are cut.
func (r *Requests) Close() error { return r.server.Close() }

func (r *Requests) serve(w http.ResponseWriter, req *http.Request) {
	var call CNICall
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxCall)).Decode(&call); err != nil {
		http.Error(w, "the call is not understood: "+err.Error(), http.StatusBadRequest)
		return
	}
	answer := make(chan edge.CNIReply, 1)
	c := &edge.CNIRequest{
		Verb: edge.CNIVerb(call.Command), Attachment: edge.Attachment{ContainerID: call.ContainerID, Ifname: call.Ifname},
		Netns: call.Netns, PodNamespace: call.PodNamespace, PodName: call.PodName, Valid: call.Valid,
		Reply: func(r edge.CNIReply) { answer <- r },
	}
	if call.Prev != nil {
		c.PrevResult = call.Prev.result()
	}
	r.q.Post(func() { r.handle(c) })
	select {
	case reply := <-answer:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answerOf(reply)) // the plugin is gone if this fails
	case <-req.Context().Done():
	}
}

func (a *CNIAnswer) result() *edge.CNIResult {
	return &edge.CNIResult{HostInterface: a.HostInterface, Ifname: a.Ifname, Netns: a.Netns, MAC: a.MAC, IPs: a.IPs, Gateways: a.Gateways}
}

func answerOf(r edge.CNIReply) *CNIAnswer {
	a := &CNIAnswer{}
	if r.Err != nil {
		a.Code, a.Msg = r.Err.Code, r.Err.Msg
	}
	if x := r.Result; x != nil {
		a.HostInterface, a.Ifname, a.Netns, a.MAC, a.IPs, a.Gateways = x.HostInterface, x.Ifname, x.Netns, x.MAC, x.IPs, x.Gateways
	}
	return a
}

// Call makes a call to the agent behind a socket. An agent that cannot be reached is an answer too: try
// again later.
func Call(ctx context.Context, socket string, call CNICall) *CNIAnswer {
	later := func(err error) *CNIAnswer {
		return &CNIAnswer{Code: edge.CNITryAgainLater, Msg: fmt.Sprintf("the agent at %s: %v", socket, err)}
	}
	body, err := json.Marshal(call)
	if err != nil {
		return later(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/cni", bytes.NewReader(body))
	if err != nil {
		return later(err)
	}
	resp, err := overUnix(socket).Do(req)
	if err != nil {
		return later(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing can be done about it
	if resp.StatusCode != http.StatusOK {
		return later(fmt.Errorf("HTTP status %s", resp.Status))
	}
	var a CNIAnswer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return later(err)
	}
	return &a
}
