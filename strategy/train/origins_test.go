package train_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Every value of a step is attributed to a line of the user's code. This includes values that this
// module and GoMLX add: conversions to half precision, means over replicas, moments and step
// counts. A precision policy does not change the attribution.
func TestEveryValueComesFromALineOfTheUser(t *testing.T) {
	sys := plugintest.System(t, 2)
	origins := func(policy precision.Policy) (lines map[string]bool) {
		strat := strategytest.On(t, sys, strategy.Options{})
		step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			x := norm.RMSNorm(rc.Scope("norm"), in[0]).Done()
			x = loop.Layers(rc.Scope("layers"), 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return graph.Add(x, layers.Dense(scope.In("up"), norm.RMSNorm(scope.In("norm"), x).Done(), true, 16))
			}, loop.Options{})
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("head"), x, false, 8)))
		}, train.Options{Precision: policy})
		require.NoError(t, err)
		compiled, err := step.Compiled(t.Context(), shapes.Make(dtypes.Float32, 32, 16))
		require.NoError(t, err)
		lines = map[string]bool{}
		check := func(what string, o *ir.Origin) {
			require.NotNil(t, o, what)
			assert.True(t, strings.HasSuffix(o.File, "origins_test.go"), "%s comes from %s:%d (%s)", what, o.File, o.Line,
				o.Call)
			lines[fmt.Sprint(o.Line, " ", o.Layer, " ", o.Pass)] = true
		}
		for n, o := range compiled.Module.Origins {
			check(fmt.Sprintf("statement %d", n), o)
		}
		for _, a := range compiled.Module.Arguments {
			check(a.Name, a.Origin)
		}
		return lines
	}
	want, got := origins(precision.Policy{}), origins(precision.MixedBFloat16)
	for line := range want { // gradients of stacks and derived values have the line of the loop
		if !strings.HasSuffix(line, "update") && !strings.Contains(line, "AdamOptimizer") {
			assert.True(t, got[line], "under bfloat16: %s", line)
		}
	}
}
