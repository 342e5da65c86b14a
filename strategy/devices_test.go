package strategy_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestDevicesHaveTensorFlowsNames(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	v, err := s.NewVariable(ctx, []float32{1}, strategy.VariableOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{"/job:localhost/replica:0/task:0/device:CPU:0",
		"/job:localhost/replica:0/task:0/device:CPU:2"}, v.Devices(), "the first of each replica")
	scope := strategytest.OK(eager.Of(s).Scope(ctx))
	second, err := s.NewVariable(strategytest.OK(eager.Of(s).LogicalDevice(scope, 1)), []float32{1},
		strategy.VariableOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{"/job:localhost/replica:0/task:0/device:CPU:1",
		"/job:localhost/replica:0/task:0/device:CPU:3"}, second.Devices())
	beside, err := s.NewVariable(strategytest.OK(eager.Of(s).ColocateVarsWith(scope, second)), []float32{1},
		strategy.VariableOptions{})
	require.NoError(t, err)
	assert.Equal(t, second.Devices(), beside.Devices())
	assert.Equal(t, "/job:localhost/replica:0/task:0/device:CPU:0", hostName(s, 1))
}

func hostName(s *strategy.TPUStrategy, replica int) string {
	_, hosts, _ := engine.Internal(s).DeviceNames()
	return hosts[replica]
}

func TestDevicesOfProcessesAreNumberedInTheirTask(t *testing.T) {
	sys := plugintest.System(t, 4)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			assert.Equal(t, []string{
				"/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1",
				"/job:localhost/replica:0/task:1/device:CPU:0", "/job:localhost/replica:0/task:1/device:CPU:1",
			}, eager.Of(s).WorkerDevices(ctx), "the same in every process")
			assert.Equal(t, "/job:localhost/replica:0/task:1/device:CPU:0", hostName(s, 2))
			return nil
		}))
}

// Device names are plain data, and are also known for a described slice.
func TestAOTDevicesOfADescribedSliceHaveNames(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	s := strategytest.Ahead(t, "v5p:2x2x2", strategy.Options{})
	v, err := s.NewVariable(ctx, []float32{1}, strategy.VariableOptions{Name: "v"})
	require.NoError(t, err)
	e := eager.Of(s)
	assert.Len(t, v.Devices(), s.NumReplicasInSync())
	assert.Equal(t, "/job:worker/replica:0/task:0/device:TPU:0", v.Devices()[0])
	assert.Contains(t, v.Devices()[s.NumReplicasInSync()-1], "/job:worker/replica:0/task:1/device:TPU:",
		"the second host's")
	assert.Equal(t, v.Devices(), e.WorkerDevices(ctx))
	assert.Equal(t, []string{"/job:worker/replica:0/task:0/device:CPU:0"}, e.NonSlotDevices())
	assert.Equal(t, 2, e.NumHosts())
	assert.Equal(t, s.NumReplicasInSync()/2, e.NumReplicasPerHost())
	assert.Empty(t, v.Shards(), "it holds nothing yet")
}
