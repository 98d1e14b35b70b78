package kube

import "testing"

// Whatever is applied, nothing panics, and what was applied can be applied again and deleted.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{guestbook, webService, pool, appService, manifestOf(1), deploymentOf("DaemonSet", "d", "", "")} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<13 {
			return
		}
		w := newWorld(t, "dual")
		if _, err := w.Apply(data, "f"); err != nil {
			return
		}
		if _, err := w.Apply(data, "f"); err != nil {
			t.Fatalf("applied once, then refused: %v\n%s", err, data)
		}
	})
}
