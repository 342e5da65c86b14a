package pjrt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestClientTopologyDescribesTheSameDevices(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	topology, err := c.Topology()
	require.NoError(t, err)
	require.Len(t, topology.Devices(), 2)
	assert.Equal(t, c.Devices()[1].Kind(), topology.Devices()[1].Kind())
	var open *pjrt.InUseError
	require.ErrorAs(t, c.Close(), &open)
	assert.Equal(t, 1, open.Topologies)
	require.NoError(t, topology.Close())
	_, err = topology.Serialize()
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestCPUPluginCannotCompileAheadOfTime(t *testing.T) {
	c := plugintest.CPU(t, 2)
	topology, err := c.Topology()
	require.NoError(t, err)
	defer topology.Close()
	_, err = topology.Compile(background, addOne(2), spmd(2))
	var pe *pjrt.Error
	require.ErrorAs(t, err, &pe)
	_, err = new(pjrt.Topology).Compile(background, addOne(2), spmd(2))
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestLibtpuCompilesAheadOfTime(t *testing.T) {
	if !inTPUChild(t) {
		return
	}
	ctx := context.Background()
	p := plugintest.Open(t, "tpu")
	topology, err := p.NewTopology(ctx, "v5e:2x4", nil)
	require.NoError(t, err)
	require.Len(t, topology.Devices(), 8)
	assert.Equal(t, "tpu", topology.PlatformName())
	first := topology.Devices()[0].Attributes()
	assert.Len(t, first["coords"], 3, "%v", first)

	x, err := topology.Compile(ctx, addOne(8), spmd(8))
	require.NoError(t, err)
	stats, err := x.MemoryStats()
	require.NoError(t, err)
	assert.Positive(t, stats.Arguments)
	assert.Equal(t, stats.Arguments, stats.Alias, "the donated argument is the result")
	dims, err := x.OutputDims()
	require.NoError(t, err)
	assert.Equal(t, [][]int{{1, 8}}, dims)
	cost, err := x.CostAnalysis()
	require.NoError(t, err)
	assert.Contains(t, cost, "flops")
	program, err := x.OptimizedProgram()
	require.NoError(t, err)
	assert.NotEmpty(t, program.Code)
	serialized, err := x.Serialize()
	require.NoError(t, err)
	assert.NotEmpty(t, serialized)
	require.NoError(t, x.Close())
	_, err = x.Name()
	require.ErrorIs(t, err, pjrt.ErrClosed)

	require.NoError(t, topology.Close())
	_, err = topology.Compile(ctx, addOne(8), spmd(8))
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestLibtpuTopologySerializationAndErrors(t *testing.T) {
	if !inTPUChild(t) {
		return
	}
	ctx := context.Background()
	p := plugintest.Open(t, "tpu")
	topology, err := p.NewTopology(ctx, "v5e:2x4", nil)
	require.NoError(t, err)
	defer topology.Close()
	b, err := topology.Serialize()
	require.NoError(t, err)
	again, err := p.LoadTopology(ctx, b)
	require.NoError(t, err)
	defer again.Close()
	require.Len(t, again.Devices(), 8)
	one, err := topology.Fingerprint()
	require.NoError(t, err)
	two, err := again.Fingerprint()
	require.NoError(t, err)
	assert.Equal(t, one, two)

	var pe *pjrt.Error
	for _, name := range []string{"v99:2x2", "v5e:axb", "v5e:3x5", "nonsense"} {
		_, err := p.NewTopology(ctx, name, nil)
		require.ErrorAs(t, err, &pe, "name %q", name)
	}
	for _, name := range []string{"v5e:0x0", "v5e:2x2x0", "v4:0x2x2", "v5e:65536x65536", "v5e:99999999999999999999x2"} {
		_, err = p.NewTopology(ctx, name, nil)
		require.ErrorContains(t, err, "pjrt: option ", "libtpu would crash on %q", name)
	}
	for _, options := range []map[string]any{{"wrap": struct{}{}}, {"num_slices": 0}, {"num_slices": int64(1 << 40)},
		{"": 1}} {
		_, err = p.NewTopology(ctx, "v5e:2x4", options)
		require.ErrorContains(t, err, "pjrt: option ", "%v", options)
	}
	var ce *pjrt.CompileError
	_, err = topology.Compile(ctx, addOne(16), spmd(16))
	require.ErrorAs(t, err, &ce, "16 devices of 8")
	_, err = topology.Compile(ctx, pjrt.Program{Code: addOne(8).Code}, spmd(8))
	require.ErrorIs(t, err, pjrt.ErrUntrusted, "libtpu aborts the process for some programs")
	_, err = topology.Compile(ctx, pjrt.Program{Code: []byte("module {"), Trusted: true}, pjrt.CompileOptions{})
	require.ErrorAs(t, err, &pe)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = topology.Compile(canceled, addOne(8), spmd(8))
	require.True(t, errors.Is(err, context.Canceled))
}
