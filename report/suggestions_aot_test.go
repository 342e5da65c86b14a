package report_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Options that a rejected step already uses are not suggested.
func TestAOTSuggestionsOfARefusedStepNameNoOptionThatIsSet(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	const width, count, rows = 1 << 15, 8, 16
	slice := plugintest.Slice(t, "v5e:2x2")
	suggestions := func(rules logical.Rules, keep remat.Policy, o train.Options) string {
		strat, err := strategy.NewAheadOfTime(slice, strategy.Options{Replicas: 2, LogicalDevices: 2, Variables: rules})
		require.NoError(t, err)
		defer strat.Close()
		step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			x := loop.Layers(rc.Scope("layers"), count, in[0], func(scope *model.Scope, x *graph.Node) *graph.Node {
				return graph.Tanh(dense(scope, x, width))
			}, loop.Options{Keep: keep})
			return graph.ReduceAllMean(graph.Square(x))
		}, o)
		require.NoError(t, err)
		_, err = step.Compiled(t.Context(), shapes.Make(dtypes.Float32, rows, width))
		var refused *strategy.MemoryError
		require.ErrorAs(t, err, &refused)
		return strings.Join(refused.Suggestions, "\n")
	}
	share, split := logical.MatchState("", logical.ShardParameters), logical.Match(`weights`, logical.SplitInto(1, 1, 2))
	plain := suggestions(nil, remat.Everything(), train.Options{})
	for option, c := range map[string]struct {
		text  string // of the suggestion
		rules logical.Rules
		keep  remat.Policy
		o     train.Options
	}{
		"state sharding": {"shard the training state over the replicas", logical.Rules{share}, remat.Everything(),
			train.Options{}},
		"splits": {"split /layers/dense/weights over the logical devices", logical.Rules{split},
			remat.Everything(), train.Options{}},
		"rematerialization": {"save fewer values", nil, remat.Nothing(), train.Options{}},
		"host memory":       {"remat.Policy.OnHost", nil, remat.Everything().OnHost(), train.Options{}},
		"half precision":    {"bfloat16", nil, remat.Everything(), train.Options{Precision: precision.MixedBFloat16}},
		"microbatches":      {"microbatches", nil, remat.Everything(), train.Options{Accumulate: rows / 2}},
		"rows":              {"smaller batches", nil, remat.Everything(), train.Options{Accumulate: rows / 2}},
	} {
		assert.Contains(t, plain, c.text)
		assert.NotContains(t, suggestions(c.rules, c.keep, c.o), c.text, option)
	}
	assert.Contains(t, plain, "take 2 microbatches instead of 1")
	assert.Contains(t, suggestions(nil, remat.Everything(), train.Options{Accumulate: 2}),
		"take 4 microbatches instead of 2")
	all := suggestions(logical.Rules{split, share}, remat.Nothing().OnHost(),
		train.Options{Precision: precision.MixedBFloat16, Accumulate: rows / 2})
	assert.Equal(t, "use more logical devices, such as 4 instead of 2\ntake a larger slice", all)
}
