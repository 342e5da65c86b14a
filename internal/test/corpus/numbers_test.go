package corpus_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/corpus"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// tolerance is the largest relative difference between a loss on a mesh and the loss on one device.
// Losses differ because the order of summation differs.
const tolerance = 2e-5

// batchOf returns a random batch. It depends only on the seed and the program's inputs.
func batchOf(t *testing.T, p corpus.Program, seed uint64) (batch []any) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	for _, in := range p.Inputs {
		tensor := tensors.FromShape(in.Shape)
		switch in.Shape.DType {
		case dtypes.Float32:
			tensors.MustMutableFlatData(tensor, func(flat []float32) {
				for i := range flat {
					flat[i] = float32(random.NormFloat64())
				}
			})
		case dtypes.Int32:
			tensors.MustMutableFlatData(tensor, func(flat []int32) {
				for i := range flat {
					flat[i] = int32(random.IntN(in.Below))
				}
			})
		default:
			t.Fatalf("input of %s", in.Shape)
		}
		batch = append(batch, tensor)
	}
	return batch
}

// losses returns the losses of three training steps, or the results of a program without a loss.
func losses(t *testing.T, sys *system.System, replicas, logicalDevices int, p corpus.Program) (all []float64) {
	t.Helper()
	ctx := context.Background()
	s := strategytest.On(t, sys, strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices,
		Variables: p.Rules(logicalDevices)})
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	if p.Loss == nil {
		f := p.Function(s, store, "f")
		results, err := f.Run(ctx, batchOf(t, p, 1)...)
		require.NoError(t, err)
		for _, result := range results {
			if result.Shape().IsScalar() {
				mean, err := s.Reduce(ctx, strategy.Mean, result)
				require.NoError(t, err)
				all = append(all, strategytest.Float64(t, mean))
				continue
			}
			for r := range replicas { // one replica after another
				part, err := result.Local(ctx, r)
				require.NoError(t, err)
				all = append(all, strategytest.Numbers(t, part)...)
			}
		}
		return all
	}
	step := p.Step(s, store, "step")
	for i := range 3 {
		loss, err := step.Run(ctx, batchOf(t, p, uint64(i))...)
		require.NoError(t, err)
		value := strategytest.Float64(t, loss)
		require.False(t, math.IsNaN(value), "the loss of step %d", i)
		all = append(all, value)
	}
	return all
}

// TestEachProgramGivesTheNumbersOfOneDevice runs each program at its small size on one device and
// on other meshes. With make corpus it tests all meshes, otherwise one mesh per program.
func TestEachProgramGivesTheNumbersOfOneDevice(t *testing.T) {
	sys := plugintest.System(t, devices)
	meshes := []int{4, 2, 8} // numbers of replicas
	worst, of := 0.0, ""
	for i, e := range corpus.All() {
		if e.Later && os.Getenv("TPUSTRATEGY_CORPUS") == "" {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			p := e.Small()
			want := losses(t, sys, 1, 1, p)
			require.NotEmpty(t, want)
			on := meshes[i%3 : i%3+1]
			switch {
			case e.Own:
				on = []int{1} // the losses depend on the number of rows per replica
			case os.Getenv("TPUSTRATEGY_CORPUS") != "":
				on = meshes
			}
			for _, replicas := range on {
				got := losses(t, sys, replicas, devices/replicas, p)
				require.Len(t, got, len(want))
				for j := range want {
					off := math.Abs(got[j]-want[j]) / math.Max(math.Abs(want[j]), 1e-2)
					if off > worst {
						worst, of = off, fmt.Sprintf("%s on %dx%d", e.Name, replicas, devices/replicas)
					}
					assert.LessOrEqual(t, off, tolerance, "number %d on %dx%d is %v, not %v", j, replicas, devices/replicas, got[j],
						want[j])
				}
			}
		})
	}
	t.Logf("the worst is %.1e, of %s", worst, of)
}
