package fuzz_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"towtank/scenarios/fuzz"
)

// cpu is the processor time of the process so far.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSeed runs seeds of 300 steps on 3 nodes and gives the median of what one costs.
func BenchmarkSeed(b *testing.B) {
	for _, coverage := range []bool{false, true} {
		b.Run(fmt.Sprintf("coverage=%t", coverage), func(b *testing.B) {
			defer debug.SetGCPercent(debug.SetGCPercent(400)) // as towtank does
			var costs []time.Duration
			var virtual int64
			began := cpu(b)
			for seed := uint64(1); b.Loop(); seed++ {
				before := cpu(b)
				r, _ := fuzz.Try(seed, fuzz.DefaultConfig(), coverage)
				costs = append(costs, cpu(b)-before)
				virtual += r.Virtual
			}
			all := cpu(b) - began
			slices.Sort(costs)
			b.ReportMetric(float64(costs[len(costs)/2].Milliseconds()), "median-cpu-ms")
			b.ReportMetric(float64(costs[len(costs)*9/10].Milliseconds()), "p90-cpu-ms")
			b.ReportMetric(float64(len(costs))*3600/all.Seconds(), "seeds/h/core")
			b.ReportMetric(time.Duration(virtual).Seconds()/all.Seconds(), "virtual-s/s")
		})
	}
}
