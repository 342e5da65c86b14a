package plugintest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func TestAMissingPluginSkipsUnlessItIsRequired(t *testing.T) {
	if plugintest.InChild(t) {
		plugintest.Path(t, "cpu")
		return
	}
	nowhere := "TPUSTRATEGY_CPU_PLUGIN=/nowhere.so"
	out, err := plugintest.Child(t, nowhere, plugintest.Require+"=0")
	require.NoError(t, err, out)
	assert.Contains(t, out, "SKIP")
	assert.Contains(t, out, "/nowhere.so", "the reason")
	out, err = plugintest.Child(t, nowhere, plugintest.Require+"=1")
	require.Error(t, err)
	assert.Contains(t, out, "FAIL")
}

func TestAChildHasTheEnvironmentGiven(t *testing.T) {
	if plugintest.InChild(t) {
		require.Equal(t, "yes", os.Getenv("PLUGINTEST_GIVEN"))
		return
	}
	out, err := plugintest.Child(t, "PLUGINTEST_GIVEN=yes")
	require.NoError(t, err, out)
	_, err = plugintest.Child(t, "PLUGINTEST_GIVEN=no")
	require.Error(t, err)
}

func TestCPUHasTheDevicesAskedFor(t *testing.T) {
	for _, n := range []int{1, 3} {
		assert.Len(t, plugintest.CPU(t, n).Devices(), n)
	}
}

func TestAChildThatDoesNotEndIsKilled(t *testing.T) {
	if plugintest.InChild(t) {
		time.Sleep(time.Minute)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, _, err := plugintest.ChildWithin(t, ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(start), 30*time.Second)
}
