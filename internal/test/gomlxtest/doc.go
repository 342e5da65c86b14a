// Package gomlxtest contains tests of GoMLX's interface for several devices: SPMD, AutoSharding,
// sharded tensors (package dtensor), sharded variables, and expected errors.
//
// The tests run on this module's two backends. With the build tag upstream they also run on GoMLX's
// own backend.
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

// run runs test cases. A panic fails only the test case in which it occurs.
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

// finalized finalizes an Exec at the end of the test, with a timeout. GoMLX's Finalize hangs after
// a panic during compilation.
func finalized(t testing.TB, exec interface{ Finalize() }) {
	t.Helper()
	t.Cleanup(func() { plugintest.Within(t, 10*time.Second, exec.Finalize) })
}
