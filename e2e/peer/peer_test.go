//go:build linux

package peer

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

// pair returns a client of a peer that runs in this process, on the loopback.
func pair(t *testing.T) *Client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(inR, outW)
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return NewClient(inW, outR)
}

// free returns a port that nobody serves.
func free(t *testing.T, network string) uint16 {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket(network, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	}
	l, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

var loopback = netip.MustParseAddr("127.0.0.1")

func TestAnswersSayWhoAndWhatWasSeen(t *testing.T) {
	for _, proto := range []string{"tcp", "udp"} {
		p := pair(t)
		port := Port{Proto: proto, Port: free(t, proto), Name: "web"}
		if err := p.Serve(port); err != nil {
			t.Fatal(err)
		}
		want := Result{Verdict: OK, Name: "web", Port: port.Port, Source: loopback, To: loopback}
		for _, size := range []int{0, 100, 1400} {
			got, err := p.Dial(Flow{Proto: proto, To: loopback, Port: port.Port, Size: size, Token: "1"})
			if err != nil || got != want {
				t.Errorf("%s of %d bytes: want %+v, got %+v, %v", proto, size, want, got, err)
			}
		}
		port.Name = "other"
		if err := p.Serve(port); err != nil {
			t.Fatal(err)
		}
		id, got, err := p.Open(Flow{Proto: proto, To: loopback, Port: port.Port, Token: "2"})
		if err != nil || got.Name != "other" || id == 0 {
			t.Errorf("%s after it was renamed: got %+v, %v", proto, got, err)
		}
		if got, err = p.Send(id, Flow{Token: "3"}); err != nil || got.Verdict != OK {
			t.Errorf("%s once more: got %+v, %v", proto, got, err)
		}
		if err := errors.Join(p.Close(id), p.Stop(port)); err != nil {
			t.Error(err)
		}
		if got, err = p.Dial(Flow{Proto: proto, To: loopback, Port: port.Port, Token: "4"}); err != nil || got.Verdict != Reject {
			t.Errorf("%s to a port that is served no more: got %+v, %v", proto, got, err)
		}
	}
}

func TestTransfer(t *testing.T) {
	p := pair(t)
	port := Port{Proto: "tcp", Port: free(t, "tcp"), Name: "web"}
	if err := p.Serve(port); err != nil {
		t.Fatal(err)
	}
	sent, received, err := p.Transfer(Flow{Proto: "tcp", To: loopback, Port: port.Port}, 1<<20)
	if err != nil || sent != received || len(sent) != 64 {
		t.Errorf("sent %s, received %s, %v", sent, received, err)
	}
}

func TestWrongRequests(t *testing.T) {
	p := pair(t)
	if _, err := p.Dial(Flow{Proto: "xtp", To: loopback}); err == nil {
		t.Error("a protocol that is none: want an error")
	}
	if _, err := p.Send(77, Flow{}); err == nil {
		t.Error("a connection that is none: want an error")
	}
	if err := p.Serve(Port{Proto: "icmp"}); err == nil {
		t.Error("to serve icmp: want an error")
	}
}
