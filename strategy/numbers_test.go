package strategy_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A Go number for a scalar, and the expected value or the kind of the error.
type numberCase struct {
	number any
	dtype  dtypes.DType
	want   any // a Go value, or an errkind.Kind
}

func numberCases() []numberCase {
	return []numberCase{
		{2.5, dtypes.Int32, errkind.TypeError}, {2.0, dtypes.Int32, errkind.TypeError}, {float32(2), dtypes.Int64,
			errkind.TypeError},
		{math.NaN(), dtypes.Int8, errkind.TypeError}, {math.Copysign(0, -1), dtypes.Uint8, errkind.TypeError},
		{1, dtypes.Bool, errkind.TypeError}, {1.5, dtypes.Bool, errkind.TypeError},
		{127, dtypes.Int8, int8(127)}, {-128, dtypes.Int8, int8(-128)}, {128, dtypes.Int8, errkind.ValueError},
		{300, dtypes.Int8, errkind.ValueError},
		{int64(-129), dtypes.Int8, errkind.ValueError}, {int32(40000), dtypes.Int16, errkind.ValueError},
		{255, dtypes.Uint8, uint8(255)}, {256, dtypes.Uint8, errkind.ValueError}, {-1, dtypes.Uint8, errkind.ValueError},
		{-1, dtypes.Uint64, errkind.ValueError}, {math.MaxInt64, dtypes.Uint64, uint64(math.MaxInt64)},
		{int64(math.MaxInt32), dtypes.Int32, int32(math.MaxInt32)}, {int64(math.MaxInt32 + 1), dtypes.Int32,
			errkind.ValueError},
		{int64(1<<53 + 1), dtypes.Int64, int64(1<<53 + 1)}, {int64(math.MaxInt64), dtypes.Int64, int64(math.MaxInt64)},
		{3, dtypes.Float32, float32(3)}, {1 << 24, dtypes.Float32, float32(1 << 24)}, {1<<24 + 1, dtypes.Float32,
			errkind.ValueError},
		{1<<53 + 1, dtypes.Float64, errkind.ValueError}, {math.MaxInt64, dtypes.Float64, errkind.ValueError},
		{math.MinInt64, dtypes.Float64, float64(math.MinInt64)}, {int32(7), dtypes.Float64, 7.0},
		{70000, dtypes.Float16, errkind.ValueError}, {2049, dtypes.Float16, errkind.ValueError}, {257, dtypes.BFloat16,
			errkind.ValueError},
		{256, dtypes.BFloat16, bfloat16.FromFloat32(256)},
		{0.1, dtypes.Float32, float32(0.1)}, {float32(0.1), dtypes.Float64, float64(float32(0.1))}, {1e-300, dtypes.Float32,
			float32(0)},
		{1e300, dtypes.Float32, errkind.ValueError}, {-1e300, dtypes.Float32, errkind.ValueError},
		{1e6, dtypes.Float16, errkind.ValueError},
		{float32(3.4028235e38), dtypes.BFloat16, errkind.ValueError}, {0.1, dtypes.Float16, float16.FromFloat32(0.1)},
		{math.Inf(-1), dtypes.Float32, float32(math.Inf(-1))}, {math.Inf(1), dtypes.Float16,
			float16.FromFloat32(float32(math.Inf(1)))},
		{2.5, dtypes.Complex64, complex64(2.5)}, {1e300, dtypes.Complex64, errkind.ValueError}, {3, dtypes.Complex128,
			complex128(3)},
	}
}

func TestNumbersFitTheVariableOrAreErrors(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for _, c := range numberCases() {
		v, err := s.NewVariable(ctx, tensors.FromShape(shapes.Make(c.dtype)), strategy.VariableOptions{LocalWrites: true})
		require.NoError(t, err)
		for way, write := range map[string]func() error{
			"outside": func() error { return v.Assign(ctx, c.number) },
			"eager": func() error {
				_, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
					error) {
					return rc.Assign(v, c.number)
				})
				return err
			},
			"in a step": func() error {
				_, err := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
					return []*graph.Node{rc.Assign(v, c.number)}
				}, strategy.FunctionOptions{}).Run(ctx)
				return err
			},
		} {
			name := fmt.Sprintf("%T %v for %s, %s", c.number, c.number, c.dtype, way)
			require.NoError(t, v.Assign(ctx, tensors.FromShape(shapes.Make(c.dtype))))
			err := write()
			got, read := v.Local(ctx, 1)
			require.NoError(t, read)
			if kind, ok := c.want.(errkind.Kind); ok {
				assert.Equal(t, kind, errkind.KindOf(err), "%s: %v", name, err)
				assert.ErrorContains(t, err, "a "+c.dtype.String(), name)
				assert.Equal(t, tensors.FromShape(shapes.Make(c.dtype)).Value(), got.Value(), "%s: nothing is written", name)
				continue
			}
			require.NoError(t, err, name)
			assert.Equal(t, c.want, got.Value(), name)
		}
		require.NoError(t, v.Close())
	}
}

// TestNumbersBesideATensorTakeItsDType adds each number to zero.
func TestNumbersBesideATensorTakeItsDType(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	add := func(a, b func(r int) any) (any, error) {
		return eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.Add(a(rc.ReplicaIDInSyncGroup()), b(rc.ReplicaIDInSyncGroup()))
		})
	}
	for _, c := range numberCases() {
		if c.dtype == dtypes.Bool {
			continue
		}
		zero := tensors.FromShape(shapes.Make(c.dtype))
		for _, last := range []bool{true, false} {
			a, b := func(int) any { return zero }, func(int) any { return c.number }
			if !last {
				a, b = b, a
			}
			name := fmt.Sprintf("%T %v beside %s, %t", c.number, c.number, c.dtype, last)
			out, err := add(a, b)
			if kind, ok := c.want.(errkind.Kind); ok {
				assert.Equal(t, kind, errkind.KindOf(err), "%s: %v", name, err)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, []any{c.want, c.want}, strategytest.Values(t, out.(strategy.Value), 2), name)
		}
	}
	for name, c := range map[string]struct {
		a, b func(r int) any
		want any // by replica, or an errkind.Kind
	}{
		"an int of each replica": {func(int) any { return tensors.FromScalar(int32(3)) }, func(r int) any { return r + 1 },
			[]any{int32(4), int32(5)}},
		"one of which is too much": {func(int) any { return tensors.FromScalar(int8(3)) },
			func(r int) any { return 100 * (r + 1) }, errkind.ValueError},
		"one of which is a float": {func(int) any { return tensors.FromScalar(int8(3)) }, func(r int) any {
			if r == 0 {
				return 1
			}
			return 1.0
		}, errkind.TypeError},
		"a vector": {func(int) any { return []int32{1, 2} }, func(int) any { return int64(5) },
			[]any{[]int32{6, 7}, []int32{6, 7}}},
		"two numbers":         {func(int) any { return 2.5 }, func(int) any { return 1 }, []any{3.5, 3.5}},
		"the other way round": {func(int) any { return 1 }, func(int) any { return 2.5 }, []any{3.5, 3.5}},
		"int beside int32":    {func(int) any { return int32(1) }, func(int) any { return 2 }, []any{int32(3), int32(3)}},
		"int32 beside int64": {func(int) any { return int32(1) }, func(int) any { return int64(2) },
			[]any{int64(3), int64(3)}},
		"int beyond int32": {func(int) any { return int32(1) }, func(int) any { return 1 << 40 }, errkind.ValueError},
		"float beside float32": {func(int) any { return float32(1) }, func(r int) any { return 0.5 },
			[]any{float32(1.5), float32(1.5)}},
		"int64 beside float32": {func(int) any { return float32(1) }, func(r int) any { return int64(1<<24 + 1) },
			errkind.ValueError},
		"other dtypes": {func(int) any { return tensors.FromScalar(int32(3)) },
			func(int) any { return tensors.FromScalar(float32(3)) }, errkind.InvalidArgumentError},
		"a uint8": {func(int) any { return tensors.FromScalar(int32(3)) }, func(int) any { return uint8(3) },
			errkind.InvalidArgumentError},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := add(c.a, c.b)
			if kind, ok := c.want.(errkind.Kind); ok {
				require.Equal(t, kind, errkind.KindOf(err), "%v", err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, strategytest.Values(t, out.(strategy.Value), 2))
		})
	}
}

func TestAFloatIsNeverCutForAnInteger(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		v, err := s.NewVariable(ctx, int32(5), strategy.VariableOptions{Aggregation: strategy.AggregateFirst})
		require.NoError(t, err)
		e := eager.Of(s)
		for name, op := range map[string]func(rc *eager.ReplicaContext) (any, error){
			"Add":       func(rc *eager.ReplicaContext) (any, error) { return rc.Add(v, 2.5) },
			"Sub":       func(rc *eager.ReplicaContext) (any, error) { return rc.Sub(2.5, v) },
			"Mul":       func(rc *eager.ReplicaContext) (any, error) { return rc.Mul(v, float32(2.5)) },
			"Div":       func(rc *eager.ReplicaContext) (any, error) { return rc.Div(v, 2.0) },
			"AssignAdd": func(rc *eager.ReplicaContext) (any, error) { return rc.AssignAdd(v, 2.5) },
			"AssignSub": func(rc *eager.ReplicaContext) (any, error) { return rc.AssignSub(v, 2.5) },
		} {
			_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return op(rc) })
			require.Equal(t, errkind.TypeError, errkind.KindOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, "Int32", name)
		}
		_, err = e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.AssignAdd(0.5) })
		require.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
		require.Equal(t, errkind.TypeError, errkind.KindOf(v.AssignAdd(ctx, 0.5)))
		got, err := v.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, int32(5), got.Value())
	})
}
