package strategy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A variable that was deleted from its store can be neither pulled nor pushed; the error reports
// it.
func TestAVariableDeletedFromItsStoreIsNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	store := model.NewStore()
	step := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("dense"), in[0], true, 1)))
		}, train.Options{}))
	_, err := step.Run(ctx, [][]float32{{1}, {2}})
	require.NoError(t, err)
	store.DeleteVariable("/dense/dense/biases")
	for _, err := range []error{s.Variables(store).Pull(ctx), s.Variables(store).Push(ctx)} {
		require.ErrorContains(t, err, `variable "/dense/dense/biases": it is on the devices, but no longer in its store`)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}

// A trainer and an evaluator that start together, and concurrent pulls, share a store that is not
// safe for concurrent use.
func TestTracesAndPullsTakeTurnsOnAStore(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	x, y := strategytest.Sums(8, 3)
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := layers.Dense(rc.Scope("hidden"), in[0], true, 4)
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
	}
	for range 3 {
		store := model.NewStore()
		vs := s.Variables(store)
		train := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), loss, train.Options{}))
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := train.Run(ctx, x, y)
			assert.NoError(t, err)
		})
		for range 3 {
			eval := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{loss(rc, in)}
			}, strategy.FunctionOptions{Store: store, SplitBatch: true})
			wg.Go(func() {
				_, err := eval.Run(ctx, x, y)
				assert.NoError(t, err)
			})
			wg.Go(func() {
				for range 5 {
					assert.NoError(t, vs.Pull(ctx))
					assert.NoError(t, vs.Push(ctx))
				}
			})
		}
		wg.Wait()
		paths := map[string]int{}
		for _, v := range vs.All() {
			paths[v.Path()]++
		}
		for path, n := range paths {
			assert.Equal(t, 1, n, "%s is on the devices once", path)
		}
		assert.Contains(t, paths, "/hidden/dense/weights")
	}
}

func TestTheWaitForAStoreIsBounded(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	store := model.NewStore()
	tracing, stop := make(chan struct{}), make(chan struct{})
	slow := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		close(tracing)
		<-stop
		return in
	}, strategy.FunctionOptions{Store: store})
	ended := make(chan error, 1)
	go func() {
		_, err := slow.Run(context.Background(), []float32{1})
		ended <- err
	}()
	<-tracing
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	other := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{Store: store})
	_, err := other.Run(ctx, []float32{1})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, s.Variables(store).Pull(ctx), context.DeadlineExceeded)
	close(stop)
	require.NoError(t, <-ended)
	_, err = other.Run(context.Background(), []float32{1})
	require.NoError(t, err)
}

// A pull within a trace would be executed once and not in each run. It is rejected immediately,
// without waiting for exclusive use of the store.
func TestPullingWithinATraceIsRefused(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	store := model.NewStore()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
			if err := s.Variables(store).Pull(mc.Context()); err != nil {
				panic(err)
			}
			return args
		}, in...)
	}, strategy.FunctionOptions{Store: store})
	_, err := f.Run(ctx, []float32{1})
	var wrong *strategy.Error
	require.ErrorIs(t, err, strategy.ErrContext)
	require.ErrorAs(t, err, &wrong)
	require.Contains(t, wrong.Hint, "before or after the run")
}
