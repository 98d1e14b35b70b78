package tables

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"towtank/agent/edge"
	"towtank/datapath"
)

// kernel is a host whose answers the test gives, and the clock of the agent beside it.
type kernel struct {
	datapath.Host
	flushed [][]datapath.Tuple
	flushes []func(error)
	dumps   []func([]datapath.ConntrackEntry, error)
	timers  []func()
	delays  []time.Duration
}

func (k *kernel) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	k.flushed, k.flushes = append(k.flushed, tuples), append(k.flushes, done)
}

func (k *kernel) DumpConntrack(done func([]datapath.ConntrackEntry, error)) {
	k.dumps = append(k.dumps, done)
}

func (k *kernel) Now() time.Time { return time.Time{} }

func (k *kernel) AfterFunc(d time.Duration, _ edge.TimerClass, f func()) edge.Timer {
	k.delays, k.timers = append(k.delays, d), append(k.timers, f)
	return k
}

func (k *kernel) Stop() {}

// elapse lets the only timer that runs end.
func (k *kernel) elapse(t *testing.T) {
	t.Helper()
	if len(k.timers) != 1 {
		t.Fatalf("%d timers run, want 1", len(k.timers))
	}
	f := k.timers[0]
	k.timers = nil
	f()
}

func (k *kernel) answerFlush(err error) {
	f := k.flushes[0]
	k.flushes = k.flushes[1:]
	f(err)
}

func (k *kernel) answerDump(entries []datapath.ConntrackEntry, err error) {
	f := k.dumps[0]
	k.dumps = k.dumps[1:]
	f(entries, err)
}

// TestKernelConntrackRetries has flushes and dumps fail: each is followed by another look, later each time, until one
// of them is answered well.
func TestKernelConntrackRetries(t *testing.T) {
	k := &kernel{}
	stale := []datapath.Tuple{{Proto: 17, Source: netip.MustParseAddr("10.10.1.2")}}
	c := NewKernelConntrack(&Env{Host: k, Clock: k, Log: klog.Background()}, func(e []datapath.ConntrackEntry) []datapath.Tuple {
		return stale[:len(e)]
	})
	one := []datapath.ConntrackEntry{{Proto: 17}}
	failed := errors.New("refused")

	c.Flush(nil)
	if len(k.flushes) != 0 {
		t.Fatal("no tuples were flushed")
	}
	c.Flush(stale)
	c.Flush(stale)
	k.answerFlush(failed)
	k.answerFlush(failed) // one timer for both
	k.elapse(t)
	k.answerDump(nil, failed)
	k.elapse(t)
	k.answerDump(one, nil)
	k.answerFlush(failed)
	k.elapse(t)
	k.answerDump(one, nil)
	k.answerFlush(nil)
	if len(k.timers) != 0 || len(k.dumps) != 0 {
		t.Errorf("%d timers, %d dumps after what was flushed", len(k.timers), len(k.dumps))
	}
	c.Flush(stale)
	k.answerFlush(failed)
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, time.Second}
	for i, d := range want {
		if i >= len(k.delays) || k.delays[i] != d {
			t.Fatalf("delays %v, want %v", k.delays, want)
		}
	}
}

// TestKernelConntrackLooksOnceMore asks for a look while one is under way: what it reads may be from before.
func TestKernelConntrackLooksOnceMore(t *testing.T) {
	k := &kernel{}
	c := NewKernelConntrack(&Env{Host: k, Clock: k, Log: klog.Background()}, func([]datapath.ConntrackEntry) []datapath.Tuple { return nil })
	c.Look()
	c.Look()
	c.Look()
	if len(k.dumps) != 1 {
		t.Fatalf("%d dumps at once, want 1", len(k.dumps))
	}
	k.answerDump(nil, nil)
	if len(k.dumps) != 1 {
		t.Fatalf("%d dumps after the first, want 1", len(k.dumps))
	}
	k.answerDump(nil, nil)
	if len(k.dumps) != 0 || len(k.flushed) != 0 {
		t.Fatalf("%d dumps and %d flushes after the second, want none", len(k.dumps), len(k.flushed))
	}
}
