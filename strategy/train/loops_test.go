package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestALoopOfStepsEqualsAsManyRuns(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 8)
	const n = 6
	rng := rand.New(rand.NewPCG(5, 6))
	var batches [][]any
	for range n {
		x, y := make([]float32, 16*8), make([]float32, 16)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
			y[i/8] += x[i]
		}
		batches = append(batches, []any{tensors.FromFlatDataAndDimensions(x, 16, 8), tensors.FromFlatDataAndDimensions(y, 16,
			1)})
	}
	for _, mesh := range [][2]int{{1, 1}, {4, 1}, {2, 2}, {4, 2}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			train := func(loop bool) (loss float64, variables map[string]*tensors.Tensor) {
				strat, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: mesh[0],
					LogicalDevices: mesh[1],
					Variables:      logical.Rules{logical.Match(`hidden/.*weights`, logical.SplitInto(1, mesh[1]))}})
				require.NoError(t, err)
				defer strat.Close()
				store := model.NewStore()
				store.SetParam(model.ParamInitialSeed, int64(7))
				step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(),
					strategytest.Annotated(mesh[1]), train.Options{}))
				var last *strategy.Mirrored
				if loop {
					last, err = step.RunSteps(ctx, batches...)
					require.NoError(t, err)
				} else {
					for _, batch := range batches {
						last, err = step.Run(ctx, batch...)
						require.NoError(t, err)
					}
				}
				loss, err = last.Float64(ctx)
				require.NoError(t, err)
				variables = map[string]*tensors.Tensor{}
				for _, v := range strat.Variables(store).All() {
					variables[v.Path()], err = v.Value(ctx)
					require.NoError(t, err)
				}
				return loss, variables
			}
			wantLoss, want := train(false)
			gotLoss, got := train(true)
			assert.InDelta(t, wantLoss, gotLoss, 1e-6)
			require.Len(t, got, len(want))
			for path, value := range want {
				assert.True(t, value.InDelta(got[path], 1e-6), path)
			}
		})
	}
}

func TestLoopsRefuseUnevenBatches(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.New(t, 2, 1)
	step := strategytest.OK(train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		strategytest.Annotated(1), train.Options{}))
	x, y := tensors.FromShape(shapes.Make(dtypes.Float32, 4, 8)), tensors.FromShape(shapes.Make(dtypes.Float32, 4, 1))
	small := tensors.FromShape(shapes.Make(dtypes.Float32, 2, 8))
	_, err := step.RunSteps(ctx)
	assert.ErrorContains(t, err, "no batches to run")
	_, err = step.RunSteps(ctx, []any{x, y}, []any{x})
	assert.ErrorContains(t, err, "the batch of step 1 has 1 arguments, that of step 0 2")
	_, err = step.RunSteps(ctx, []any{x, y}, []any{small, y})
	assert.ErrorContains(t, err, "a loop has one shape for all")
	_, err = step.RunSteps(ctx, []any{x, y}, []any{x, y})
	assert.NoError(t, err, "the step is usable after errors")
}
