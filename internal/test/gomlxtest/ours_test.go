package gomlxtest_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/gomlxtest"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// onAll returns the backend with 8 devices. GoMLX programs may address the devices by number.
func onAll(t *testing.T) compute.Backend {
	t.Helper()
	b, err := gomlx.New(plugintest.System(t, 8), gomlx.Options{LogicalDevices: 2, Compiler: plugintest.Programs(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestAutoSharding(t *testing.T) { gomlxtest.AutoSharding(t, onAll(t)) }
func TestTrainer(t *testing.T)      { gomlxtest.Trainer(t, onAll(t)) }
func TestSPMD(t *testing.T)         { gomlxtest.SPMD(t, onAll(t)) }
func TestRefused(t *testing.T)      { gomlxtest.Refused(t, onAll(t)) }
