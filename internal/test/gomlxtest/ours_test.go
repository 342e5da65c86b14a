package gomlxtest_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/gomlxtest"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/backend"
	"github.com/tpustrategy/tpustrategy/lowering/global"
)

// onAll returns the backend that hands graphs for named devices on to the other one.
func onAll(t *testing.T) compute.Backend {
	t.Helper()
	b, err := global.New(plugintest.System(t, 8), global.Options{Logical: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestAutoSharding(t *testing.T) { gomlxtest.AutoSharding(t, onAll(t)) }
func TestTrainer(t *testing.T)      { gomlxtest.Trainer(t, onAll(t)) }

// both runs a test on the backend that runs a graph on the devices which GoMLX names, and on the
// one that runs any other graph on all of them.
func both(t *testing.T, test func(*testing.T, compute.Backend)) {
	t.Helper()
	sys := plugintest.System(t, 8)
	named, err := backend.New(sys.Client(), backend.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, named.Close()) })
	t.Run("backend", func(t *testing.T) { test(t, named) })
	whole, err := global.New(sys, global.Options{Logical: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, whole.Close()) })
	t.Run("global", func(t *testing.T) { test(t, whole) })
}

func TestSPMD(t *testing.T)    { both(t, gomlxtest.SPMD) }
func TestRefused(t *testing.T) { both(t, gomlxtest.Refused) }
