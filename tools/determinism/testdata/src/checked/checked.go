package checked

import (
	crand "crypto/rand"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"
)

func goroutines(ch chan int) int {
	go goroutines(ch)      // want `go statement`
	c := make(chan int, 1) // want `channel made`
	ch <- 1                // want `channel send`
	n := <-c               // want `channel receive`
	for v := range ch {    // want `range over a channel`
		n += v
	}
	select { // want `select: picks among`
	case n = <-ch:
		<-c // want `channel receive`
	case c <- 1:
	default:
	}
	close(c) // want `channel closed`
	return n
}

func clocks(now time.Time) time.Duration {
	time.Sleep(1)       // want `time.Sleep reads the wall clock`
	f := time.Now       // want `time.Now reads the wall clock`
	<-time.After(1)     // want `channel receive` `time.After reads the wall clock`
	_ = time.Since(now) // want `time.Since reads`
	_ = f
	return now.Sub(time.Unix(0, 0)) + 3*time.Second
}

func randomness(r *rand.Rand) int {
	b := make([]byte, 8)
	crand.Read(b)                                                         // want `crypto/rand.Read is random`
	_ = crand.Reader                                                      // want `crypto/rand.Reader is random`
	_ = maphash.MakeSeed()                                                // want `maphash.MakeSeed is seeded anew`
	rand.Shuffle(len(b), func(int, int) {})                               // want `rand/v2.Shuffle uses the global generator`
	return r.IntN(3) + rand.IntN(3) + rand.New(rand.NewPCG(1, 2)).IntN(3) // want `rand/v2.IntN uses the global generator`
}

func iterators(m map[string]int, s *sync.Map) []string {
	_ = slices.Sorted(maps.Keys(m))
	_ = slices.SortedFunc(maps.Values(m), func(a, b int) int { return a - b })
	_ = maps.Collect(maps.All(m))
	_ = reflect.ValueOf(m).MapKeys()             // want `reflect's MapKeys walks`
	s.Range(func(any, any) bool { return true }) // want `sync.Map's Range walks`
	for range maps.Values(m) {                   // want `maps.Values yields in the order of the map`
	}
	keys := maps.Keys(m) // want `maps.Keys yields in the order of the map`
	_ = keys
	return slices.Collect(maps.Keys(m)) // want `maps.Keys yields in the order of the map`
}

func ignores(m map[string]int) time.Time {
	//determinism:ignore only the log shows it
	t := time.Now()
	u := time.Now() //determinism:ignore only the log shows it
	/* want `needs a reason` */ //determinism:ignore
	v := time.Now()
	/* want `nothing to ignore` */ //determinism:ignore there is nothing here
	_ = u
	_ = v
	return t
}
