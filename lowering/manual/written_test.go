//go:build cgo

package manual_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// In a layer, a manual region writes a sum over its devices, and another one writes a value that
// differs between devices.
func TestManualRegionsOfLayersWrite(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 2)
	run := func(value func(x *graph.Node) *graph.Node) (float32, error) {
		v, err := s.NewVariable(ctx, float32(2), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		_, err = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			cut := sharding.P("logical")
			return []*graph.Node{loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
				return manual.Region(nil, []manual.Arg{{Node: x, Spec: cut}}, []sharding.Spec{cut},
					func(in []*graph.Node) []*graph.Node {
						rc.AssignAdd(v, value(graph.ReduceAllSum(in[0])))
						return []*graph.Node{graph.Mul(in[0], in[0])}
					})[0]
			}, loop.Options{})}
		}, strategy.FunctionOptions{}).Run(ctx, []float32{1, 2, 3, 4})
		if err != nil {
			return 0, err
		}
		now, err := v.Value(ctx)
		require.NoError(t, err)
		return tensors.ToScalar[float32](now), nil
	}
	sum, err := run(func(x *graph.Node) *graph.Node { return manual.AllReduce(x, manual.Sum) })
	require.NoError(t, err)
	assert.Equal(t, float32(2+10+30+354), sum)
	_, err = run(func(x *graph.Node) *graph.Node { return x })
	require.ErrorContains(t, err, "differs between the devices, and is used outside")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
}
