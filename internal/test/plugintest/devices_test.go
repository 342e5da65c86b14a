package plugintest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestASystemIsClosedWithItsTest(t *testing.T) {
	var sys *system.System
	t.Run("inner", func(t *testing.T) {
		sys = plugintest.System(t, 3)
		require.Equal(t, 3, sys.Topology().NumDevices())
	})
	_, err := sys.Client().Compile(t.Context(), pjrt.Program{Code: []byte("module {}"), Format: "mlir", Trusted: true},
		pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestASliceIsThatOfItsName(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	assert.Equal(t, 8, plugintest.Slice(t, "v5litepod-8").Topology().NumDevices())
}

func TestATestOfMinutesHasANameByWhichItRuns(t *testing.T) {
	if plugintest.InChild(t) {
		plugintest.Large(t)
		return
	}
	out, err := plugintest.Child(t, "TPUSTRATEGY_AOT=1")
	require.Error(t, err)
	assert.Contains(t, out, "call it TestAOTLarge")
}

func TestAChildThatFailsFailsItsTest(t *testing.T) {
	if plugintest.InChild(t) {
		plugintest.Within(t, time.Millisecond, func() { time.Sleep(time.Minute) })
		return
	}
	out, err := plugintest.Child(t)
	require.Error(t, err)
	assert.Contains(t, out, "no return in 1ms")
	plugintest.Within(t, time.Minute, func() {})
}
