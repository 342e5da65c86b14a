package fit_test

import (
	"os"
	"testing"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// programs are those that the tests have compiled: most of them run the same steps again and again.
var programs *cache.Cache

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir := strategytest.OK(os.MkdirTemp("", "fit-programs-"))
		defer os.RemoveAll(dir)
		programs = strategytest.OK(cache.Open(dir, cache.Options{}))
		return m.Run()
	}())
}

// on returns a strategy of so many replicas and logical devices that compiles a program once.
func on(t testing.TB, replicas, logicalDevices int, opts ...strategy.Options) *strategy.TPUStrategy {
	o := strategy.Options{}
	if len(opts) > 0 {
		o = opts[0]
	}
	o.Compiler = programs
	return strategytest.New(t, replicas, logicalDevices, o)
}
