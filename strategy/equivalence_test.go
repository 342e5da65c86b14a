package strategy_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func openCPU(t testing.TB, devices int) *system.System {
	t.Helper()
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: devices})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sys.Close()) })
	return sys
}

// annotated is a regression model with every kind of annotation in it.
func annotated(p int) strategy.LossFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := layers.Dense(rc.Scope("hidden"), in[0], true, 16)
		h = graph.Tanh(logical.Split(h, 1, p))
		h = logical.On(p-1, h, func(h *graph.Node) *graph.Node {
			return graph.Add(h, graph.Tanh(layers.Dense(rc.Scope("expert"), h, true, 16)))
		})
		h = logical.Assign(h, p/2)
		y := logical.Replicate(layers.Dense(rc.Scope("output"), h, true, 1))
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}
}

func TestTrainingIsTheSameOnEveryMesh(t *testing.T) {
	sys := openCPU(t, 8)
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	var xs, ys []*tensors.Tensor
	for range 20 {
		x, y := make([]float32, 32*8), make([]float32, 32)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
			y[i/8] += x[i] * float32(i%8) / 8
		}
		xs = append(xs, tensors.FromFlatDataAndDimensions(x, 32, 8))
		ys = append(ys, tensors.FromFlatDataAndDimensions(y, 32, 1))
	}
	var wantLosses []float64
	var want map[string]*tensors.Tensor
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 2}, {2, 4}, {8, 1}, {1, 8}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			r, p := mesh[0], mesh[1]
			strat, err := strategy.New(sys, strategy.Options{Replicas: r, LogicalDevices: p, Variables: logical.Rules{
				logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)),
				logical.Match(`output/.*weights`, logical.SplitInto(p, 1)),
			}})
			require.NoError(t, err)
			defer strat.Close()
			store := model.NewStore()
			store.SetParam(model.ParamInitialSeed, int64(42))
			step := strat.TrainStep(store, optimizer.Adam().LearningRate(0.01).Done(), annotated(p))
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
