package stepfile_test

import (
	"bytes"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A step that was compiled for GPUs is rejected on other devices with the name of its plugin.
func TestGPUStepsAreLoadedOnGPUsAlone(t *testing.T) {
	slice, err := system.Describe(t.Context(), "h100:2", system.DescribeOptions{Plugin: plugintest.CUDA(t)})
	require.NoError(t, err)
	defer slice.Close()
	described, err := strategy.NewAheadOfTime(slice, strategy.Options{})
	require.NoError(t, err)
	compiled, err := described.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
	}, strategy.FunctionOptions{Name: "sum"}).Compiled(t.Context(), shapes.Make(dtypes.Float32, 8))
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &file, compiled))

	here, err := strategy.New(plugintest.System(t, 2), strategy.Options{})
	require.NoError(t, err)
	defer here.Close()
	_, err = stepfile.Load(t.Context(), here, bytes.NewReader(file.Bytes()), nil)
	var refused *stepfile.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Plugin, refused.Reason)
	assert.Regexp(t, `it was compiled by another plugin: "cuda; PJRT .*, and here is "cpu; PJRT `, err.Error())
	_, err = stepfile.Load(t.Context(), described, &file, nil)
	assert.ErrorIs(t, err, strategy.ErrAheadOfTime)
}
