package train_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestTrainingIsTheSameOnEveryMesh(t *testing.T) {
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	xs, ys := strategytest.Regression(rand.New(rand.NewPCG(1, 2)), 20)
	var wantLosses []float64
	var want map[string]*tensors.Tensor
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 2}, {2, 4}, {8, 1}, {1, 8}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			r, p := mesh[0], mesh[1]
			strat, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: r, LogicalDevices: p,
				Variables: logical.Rules{
					logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)),
					logical.Match(`output/.*weights`, logical.SplitInto(p, 1)),
				}})
			require.NoError(t, err)
			defer strat.Close()
			store := model.NewStore()
			store.SetParam(model.ParamInitialSeed, int64(42))
			step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(),
				strategytest.Annotated(p), train.Options{}))
			var losses []float64
			for i := range xs {
				loss, err := step.Run(ctx, xs[i], ys[i])
				require.NoError(t, err)
				value, err := loss.Float64(ctx)
				require.NoError(t, err)
				losses = append(losses, value)
			}
			got := map[string]*tensors.Tensor{}
			for _, v := range strat.Variables(store).All() {
				for replica := range r {
					value, err := v.Local(ctx, replica)
					require.NoError(t, err)
					if replica == 0 {
						got[v.Path()] = value
					} else {
						require.True(t, got[v.Path()].Equal(value), "%s differs on replica %d", v.Path(), replica)
					}
				}
			}
			if want == nil {
				wantLosses, want = losses, got
				require.Less(t, losses[19], losses[0])
				return
			}
			for i := range losses {
				require.InDelta(t, wantLosses[i], losses[i], 1e-5*math.Abs(wantLosses[i])+1e-6, "loss of step %d", i)
			}
			require.Len(t, got, len(want))
			for path, value := range want {
				if value.DType() == dtypes.Float32 {
					require.True(t, value.InDelta(got[path], 2e-5), "%s:\n%s\n%s", path, value, got[path])
				}
			}
		})
	}
}
