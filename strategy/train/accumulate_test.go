package train_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// trained has the losses of some steps and the final values of the store's variables.
type trained struct {
	losses []float64
	values map[string]*tensors.Tensor
}

func (want trained) equals(t *testing.T, got trained, tolerance float64) {
	t.Helper()
	require.Len(t, got.losses, len(want.losses))
	for i := range want.losses {
		require.InDelta(t, want.losses[i], got.losses[i], tolerance*math.Max(1, math.Abs(want.losses[i])), "loss of step %d",
			i)
	}
	require.Len(t, got.values, len(want.values))
	for path, value := range want.values {
		if value.DType() == dtypes.Float32 {
			require.True(t, value.InDelta(got.values[path], tolerance), "%s:\n%s\n%s", path, value, got.values[path])
		}
	}
}

// trainOn runs one step for each batch.
func trainOn(t *testing.T, strat *strategy.TPUStrategy, opt optimizer.Interface, loss train.Loss, o train.Options,
	batches ...[]any) (got trained) {
	t.Helper()
	ctx := context.Background()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	step := strategytest.OK(train.New(strat, store, opt, loss, o))
	for _, batch := range batches {
		l, err := step.Run(ctx, batch...)
		require.NoError(t, err)
		value, err := l.Float64(ctx)
		require.NoError(t, err)
		got.losses = append(got.losses, value)
	}
	got.values = values(t, strat, store)
	return got
}

func rowsOf(n int) (batches [][]any) {
	xs, ys := strategytest.Regression(rand.New(rand.NewPCG(1, 2)), n)
	for i := range xs {
		batches = append(batches, []any{xs[i], ys[i]})
	}
	return batches
}

func TestAccumulatedGradientsAreThoseOfTheBatch(t *testing.T) {
	sys := plugintest.System(t, 8)
	batches := rowsOf(2)
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }
	want := trainOn(t, strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}), adam(),
		strategytest.Annotated(1), train.Options{}, batches...)
	for _, mesh := range [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			p := mesh[1]
			strat := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: p, Variables: logical.Rules{
				logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)), logical.Match(`output/.*weights`,
					logical.SplitInto(p, 1))}})
			got := trainOn(t, strat, adam(), strategytest.Annotated(p), train.Options{Accumulate: 4}, batches...)
			want.equals(t, got, 2e-5)
		})
	}
}

func TestTheTextDoesNotGrowWithTheMicrobatches(t *testing.T) {
	s := strategytest.New(t, 2, 2)
	text := func(n int) string {
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(), strategytest.Annotated(2),
			train.Options{Accumulate: n}))
		m, err := step.Lowered(t.Context(), rowsOf(1)[0]...)
		require.NoError(t, err)
		return string(m.Text)
	}
	two, eight := text(2), text(8)
	assert.Equal(t, strings.Count(two, "\n"), strings.Count(eight, "\n"))
	assert.Equal(t, 1, strings.Count(eight, `"stablehlo.while"`))
	// Each gradient and the loss are reduced over the replicas once, after the loop.
	_, loop, _ := strings.Cut(eight, "^run(")
	body, behind, _ := strings.Cut(loop, "\n    })")
	assert.Zero(t, strings.Count(body, "replica_groups = #replica_groups"))
	assert.Equal(t, 7, strings.Count(behind, "replica_groups = #replica_groups"))
}

func TestMicrobatchesThatCannotBeAreErrors(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	x, _ := strategytest.Sums(8, 8)
	short, _ := strategytest.Sums(6, 8)
	one, err := s.Mirror(t.Context(), float32(1), logical.Annotation{})
	require.NoError(t, err)
	scalar := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(layers.Dense(rc.Scope("out"), graph.Reshape(graph.ConvertDType(in[0], dtypes.Float32), 1,
			1), true, 1))
	}
	for name, c := range map[string]struct {
		n     int
		loss  train.Loss
		batch []any
		want  string
	}{
		"no rows":    {4, scalar, []any{one}, "no argument has rows"},
		"other rows": {4, odd(1), []any{x, short}, "argument 1 has 3 rows, which do not divide, and argument 0 has 4"},
	} {
		t.Run(name, func(t *testing.T) {
			step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(), c.loss,
				train.Options{Accumulate: c.n, UnequalRows: true}))
			_, err := step.Run(t.Context(), c.batch...)
			var traced *strategy.TraceError
			require.ErrorAs(t, err, &traced)
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		})
	}
	_, err = train.New(s, model.NewStore(), optimizer.Adam().Done(), odd(1), train.Options{Accumulate: -1})
	assert.ErrorContains(t, err, "Options.Accumulate is -1; use 0")
}
