// Package gomlxtest runs GoMLX's own interface to several devices over a backend: SPMD,
// AutoSharding, tensors in parts (package dtensor), variables with shardings, and what has to be
// refused.
//
// The same tests run over this module's two backends, and, with the build tag upstream, over the
// backend that GoMLX ships with.
package gomlxtest

import (
	"testing"
	"time"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// testCase is a test of a backend.
type testCase struct {
	name string
	test func(*testing.T, compute.Backend)
}

// run runs tests. A panic fails its test only.
func run(t *testing.T, b compute.Backend, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			c.test(t, b)
		})
	}
}

// finalized finalizes an Exec when the test ends. GoMLX's own Finalize waits forever for a
// compilation that ended in a panic.
func finalized(t testing.TB, exec interface{ Finalize() }) {
	t.Helper()
	t.Cleanup(func() { plugintest.Within(t, 10*time.Second, exec.Finalize) })
}
