package strategytest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestAStrategyIsClosedWithItsTest(t *testing.T) {
	var s *strategy.TPUStrategy
	t.Run("inner", func(t *testing.T) {
		s = strategytest.New(t, 2, 2, strategy.Options{Replicas: 7, Semantics: strategy.TensorFlowMirrored})
		assert.Equal(t, 2, s.NumReplicasInSync())
		assert.Equal(t, 2, s.NumLogicalDevices())
		x, err := s.PerReplica(context.Background(), []any{float32(1), float32(2)}, logical.Annotation{})
		require.NoError(t, err)
		assert.Equal(t, []any{float32(1), float32(2)}, strategytest.Values(t, x, 2))
		sum, err := s.Reduce(context.Background(), strategy.Sum, x)
		require.NoError(t, err)
		assert.Equal(t, 3.0, strategytest.Float64(t, sum))
	})
	_, err := s.PerReplica(context.Background(), []any{float32(1), float32(2)}, logical.Annotation{})
	require.ErrorIs(t, err, strategy.ErrClosed)
}

func TestProcessesShareTheDevices(t *testing.T) {
	fault := errors.New("mine")
	errs := strategytest.OnProcesses(t, plugintest.System(t, 2), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 2},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			assert.Equal(t, 2, s.NumReplicasInSync())
			if s.Process() == 1 {
				return fault
			}
			return nil
		})
	require.Equal(t, []error{nil, fault}, errs)
	strategytest.NoErrors(t, errs[:1])
}

func TestEachMeshHasASubtest(t *testing.T) {
	var seen [][2]int
	meshes := [][2]int{{1, 1}, {2, 2}}
	strategytest.OnMeshes(t, meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		seen = append(seen, [2]int{s.NumReplicasInSync(), s.NumLogicalDevices()})
	})
	assert.Equal(t, meshes, seen)
}

func TestNumbers(t *testing.T) {
	for _, x := range []any{[]float32{1, 0}, []float64{1, 0}, [][]int32{{1}, {0}}, []int64{1, 0}, []bool{true, false},
		[]bfloat16.BFloat16{bfloat16.FromFloat32(1), 0}} {
		assert.Equal(t, []float64{1, 0}, strategytest.Numbers(t, tensors.MustFromAnyValue(x)))
	}
	_, err := strategytest.Elements(tensors.MustFromAnyValue([]complex64{1}))
	require.ErrorContains(t, err, "no numbers in")
}
