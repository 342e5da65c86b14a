package system_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// hangingRuntime is a runtime whose Close never returns.
type hangingRuntime struct{ system.Runtime }

func (hangingRuntime) Close() error { select {} }

func TestShutdownReturnsAtDeadline(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 2, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	sys, err := system.New(hangingRuntime{base.Runtime()}, base.Topology())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, sys.Shutdown(ctx), context.DeadlineExceeded)
	require.NoError(t, base.Shutdown(context.Background()))
	require.NoError(t, base.Close(), "a second close returns the first result")
}

func TestCloseOfSystemInUseFails(t *testing.T) {
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: 1, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	rt := sys.Runtime()
	buffer, err := rt.BufferFromHost(context.Background(), make([]byte, 4), pjrt.F32, nil, rt.Devices()[0])
	require.NoError(t, err)
	err = sys.Close()
	var open *pjrt.InUseError
	require.ErrorAs(t, err, &open)
	assert.Equal(t, 1, open.Buffers)
	assert.ErrorContains(t, err, "close the strategies of the system first")
	require.NoError(t, buffer.Close())
	require.NoError(t, sys.Close())
}

// The computation shape is from TensorFlow's documentation.
func TestShapeErrorSuggestsMeshOfCPUDevices(t *testing.T) {
	shape := tpu.AssignmentOptions{ComputationShape: []int{1, 2, 2, 2}}
	opts := system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")}
	sys, err := system.Open(t.Context(), opts)
	require.NoError(t, err)
	_, err = tpu.BuildDeviceAssignment(sys.Topology(), shape)
	require.NoError(t, sys.Close())
	assert.ErrorContains(t, err, "set a mesh such as []int{1, 2, 2, 2} in system.Options.MeshShape")

	opts.MeshShape = []int{1, 2, 2, 2}
	sys, err = system.Open(t.Context(), opts)
	require.NoError(t, err)
	_, err = tpu.BuildDeviceAssignment(sys.Topology(), shape)
	assert.NoError(t, err)
	require.NoError(t, sys.Close())
}

func TestNewRejectsTopologyOfOtherProcess(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	cluster, err := simhost.New(base, simhost.Options{Processes: 2})
	require.NoError(t, err)
	_, err = system.New(base.Runtime(), cluster.Topology())
	assert.ErrorContains(t, err, "a process must address all devices of one task")
}
