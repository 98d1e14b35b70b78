package shell_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
	"towtank/agent/shell"
)

// A status socket answers for whoever asks, also if the last process left one behind; a server that is not
// there is an error that names the socket.
func TestAsk(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	h := http.NewServeMux()
	h.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"node":"n1"}`)) })
	h.HandleFunc("GET /store", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) })
	for range 2 {
		end, err := shell.ServeLocal(socket, h)
		if err != nil {
			t.Fatal(err)
		}
		var r shell.Report
		if err := shell.Ask(t.Context(), socket, "/status", &r); err != nil || r.Node != "n1" {
			t.Errorf("asked: %+v, %v", r, err)
		}
		if err := shell.Ask(t.Context(), socket, "/store", &r); err == nil || !strings.Contains(err.Error(), "busy") {
			t.Errorf("asked who is busy: %v", err)
		}
		defer func() { _ = end() }()
	}
	if err := shell.Ask(t.Context(), socket+"2", "/status", nil); err == nil || !strings.Contains(err.Error(), "agent.sock2") {
		t.Errorf("asked nobody: %v", err)
	}
}

// A loop that hangs fails its liveness probe, rather than to leave it waiting.
func TestProbeOfHangingLoop(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	i := &shell.Inspector{Queue: shell.NewQueue()} // nobody runs it
	if _, err := i.Ready(ctx); err == nil {
		t.Error("a loop that does not run is alive")
	}
}

// An address that cannot be listened on is an error, and closes what was opened before it.
func TestServeFails(t *testing.T) {
	i := &shell.Inspector{Queue: shell.NewQueue()}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	if _, err := i.Serve(socket, "127.0.0.1:no-port", shell.AgentMetrics); err == nil || !strings.Contains(err.Error(), "metrics") {
		t.Errorf("a port that is none: %v", err)
	}
	if err := shell.Ask(t.Context(), socket, "/status", nil); err == nil {
		t.Error("the socket is still answered on")
	}
}

// noCluster answers every write with an error.
type noCluster struct{ edge.Cluster }

func (noCluster) UpdateStatus(_ runtime.Object, done func(runtime.Object, error)) {
	done(nil, errors.New("no"))
}

// The journal numbers what goes through the seams, keeps the last of it, and says when older is missing.
func TestJournal(t *testing.T) {
	j := shell.NewJournal(func(unit string) []string { return []string{"egress/" + unit} })
	egress := &v1beta1.Egress{}
	egress.Name = "e"
	j.Cluster(noCluster{}).UpdateStatus(egress, func(_ runtime.Object, err error) {
		if err == nil {
			t.Error("the answer got lost")
		}
	})
	writes, complete := j.After(0)
	if len(writes) != 1 || !complete || writes[0].Class != shell.ClassAPIStatus || writes[0].Units[0] != "Egress//e" || writes[0].About[0] != "egress/Egress//e" {
		t.Errorf("writes: %+v, %v", writes, complete)
	}
	if n := j.Writes(); n["api"] != 1 || n["switch"] != 0 {
		t.Errorf("counts: %v", n)
	}
	for range 30_000 {
		j.Cluster(noCluster{}).UpdateStatus(egress, func(runtime.Object, error) {})
	}
	if writes, complete = j.After(1); complete || len(writes) < 10_000 || writes[len(writes)-1].Number != 30_001 {
		t.Errorf("after 30,000: %d writes, complete %v", len(writes), complete)
	}
	if writes, complete = j.After(30_000); !complete || len(writes) != 1 {
		t.Errorf("the last: %+v, %v", writes, complete)
	}
	if writes, complete = j.After(50_000); !complete || len(writes) != 0 {
		t.Errorf("those to come: %+v, %v", writes, complete)
	}
}
