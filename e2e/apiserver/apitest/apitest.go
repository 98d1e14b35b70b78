// Package apitest has the API server of scenarios run in tests.
package apitest

import (
	"errors"
	"net"
	"testing"

	"towtank/e2e/apiserver"
)

// Serve runs a server on a loopback port until the test ends, and returns it with its URL.
func Serve(t testing.TB, c apiserver.Config) (*apiserver.Server, string) {
	t.Helper()
	s, err := apiserver.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return s, "https://" + l.Addr().String()
}
