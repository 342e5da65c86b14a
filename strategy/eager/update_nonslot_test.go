package eager_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// number returns the value of a scalar on the host or the devices.
func number(t *testing.T, ctx context.Context, x any) float32 {
	t.Helper()
	switch x := x.(type) {
	case eager.Component:
		v, err := x.Local(ctx)
		require.NoError(t, err)
		return tensors.ToScalar[float32](v)
	case *strategy.Mirrored:
		v, err := x.Value(ctx)
		require.NoError(t, err)
		return tensors.ToScalar[float32](v)
	case float32:
		return x
	}
	t.Fatalf("a %T", x)
	return 0
}

// The expected results are those of TensorFlow 2.21's MirroredStrategy on four devices.
func TestANonSlotUpdateOfSomeDevicesRunsOnceForEach(t *testing.T) {
	ctx := context.Background()
	for _, logicalDevices := range []int{1, 2} {
		s := strategytest.New(t, 4, logicalDevices, strategy.Options{Semantics: strategy.TensorFlowMirrored})
		e := eager.Of(s)
		d := e.NonSlotDevices()
		parts, err := s.PerReplica(ctx, []any{float32(0), float32(1), float32(2), float32(3)}, logical.Annotation{})
		require.NoError(t, err)
		for name, c := range map[string]struct {
			devices []string
			plain   []float32 // results of the runs
			parts   []float32 // with a component of an argument added
		}{
			"the first":   {d[:1], []float32{5}, []float32{5}},
			"another":     {d[2:3], []float32{5}, []float32{5}},
			"two":         {d[1:3], []float32{5, 5}, []float32{5, 6}},
			"out of turn": {[]string{d[3], d[0]}, []float32{5, 5}, []float32{5, 6}},
			"one twice":   {[]string{d[1], d[1]}, []float32{5, 5}, []float32{5, 6}},
			"three":       {d[1:], []float32{5, 5, 5}, []float32{5, 6, 7}},
			"reversed":    {[]string{d[3], d[2], d[1], d[0]}, []float32{5, 5, 5, 5}, []float32{5, 6, 7, 8}},
		} {
			t.Run(name, func(t *testing.T) {
				var ids []int
				var devices []string
				fn := func(u *eager.UpdateContext, args ...any) (any, error) {
					ids, devices = append(ids, u.ReplicaID()), append(devices, u.Device())
					if len(args) == 0 {
						return u.Ops().Add(tensors.FromScalar(float32(2)), 3)
					}
					return u.Ops().Add(args[0], 5)
				}
				for _, with := range []struct {
					args []any
					want []float32
				}{{nil, c.plain}, {[]any{parts}, c.parts}} {
					ids, devices = nil, nil
					results, err := e.UpdateNonSlotEach(ctx, c.devices, fn, with.args...)
					require.NoError(t, err)
					var got []float32
					for _, x := range results {
						got = append(got, number(t, ctx, x))
					}
					assert.Equal(t, with.want, got)
					assert.Equal(t, []int{0, 1, 2, 3}[:len(c.devices)], ids)
					assert.Equal(t, c.devices, devices)

					grouped, err := e.UpdateNonSlot(ctx, c.devices, fn, with.args...)
					require.NoError(t, err)
					if len(c.devices) == 1 {
						assert.Equal(t, with.want[0], number(t, ctx, grouped))
						continue
					}
					all, err := eager.Of(s).LocalResultsOf(grouped)
					require.NoError(t, err)
					got = nil
					for _, x := range all {
						got = append(got, number(t, ctx, x))
					}
					assert.Equal(t, with.want, got)
				}
			})
		}
	}
}

func TestANonSlotUpdateOfSomeDevicesWritesNoVariable(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 4, Semantics: strategy.TensorFlowMirrored})
	e := eager.Of(s)
	v, err := s.NewVariable(ctx, tensors.FromScalar(float32(1)),
		strategy.VariableOptions{Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	write := map[string]eager.UpdateFunc{
		"assign": func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Ops().Assign(v, float32(2)) },
		"method": func(u *eager.UpdateContext, _ ...any) (any, error) { return nil, v.AssignAdd(u.Context(), 1) },
		"scatter": func(u *eager.UpdateContext, _ ...any) (any, error) {
			return u.Ops().Scatter(strategy.ScatterAdd, v, 0, 1)
		},
	}
	for name, fn := range write {
		_, err := e.UpdateNonSlot(ctx, e.NonSlotDevices()[1:3], fn)
		assert.ErrorIs(t, err, strategy.ErrContext, name)
	}
	got, err := e.UpdateNonSlotEach(ctx, e.NonSlotDevices()[1:3], func(u *eager.UpdateContext, _ ...any) (any,
		error) {
		return u.Ops().Read(v)
	})
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 1}, []float32{number(t, ctx, got[0]), number(t, ctx, got[1])})
	// An update of all devices may write the variable, in any order.
	d := e.NonSlotDevices()
	_, err = e.UpdateNonSlot(ctx, []string{d[3], d[2], d[1], d[0]}, write["method"])
	require.NoError(t, err)
	now, err := v.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, float32(2), tensors.ToScalar[float32](now))
	// A variable that the functions return is returned unchanged.
	same, err := e.UpdateNonSlot(ctx, d[1:3], func(*eager.UpdateContext, ...any) (any, error) { return v, nil })
	require.NoError(t, err)
	assert.Same(t, v, same)
	texts, err := e.UpdateNonSlot(ctx, d[1:3], func(u *eager.UpdateContext, _ ...any) (any, error) {
		return map[string]any{"a": "text", "b": []any{u.Device()}}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"a": "text", "b": []any{strategy.NewObjects(d[1], d[2])}}, texts)
}

// The expected results are those of TPUStrategy with group=False.
func TestANonSlotUpdateOfTheHostTakesItsResultApart(t *testing.T) {
	ctx := context.Background()
	for _, logicalDevices := range []int{1, 2} {
		s := strategytest.New(t, 2, logicalDevices)
		e := eager.Of(s)
		parts, err := s.PerReplica(ctx, []any{float32(1), float32(2)}, logical.Annotation{})
		require.NoError(t, err)
		first := func(_ *eager.UpdateContext, args ...any) (any, error) { return args[0], nil }
		results, err := e.UpdateNonSlotEach(ctx, e.NonSlotDevices(), first, parts)
		require.NoError(t, err)
		require.Len(t, results, 2)
		for r, x := range results {
			assert.Equal(t, float32(r+1), number(t, ctx, x))
		}
		whole, err := e.UpdateNonSlot(ctx, e.NonSlotDevices(), first, parts)
		require.NoError(t, err)
		assert.Same(t, parts, whole)
		results, err = e.UpdateNonSlotEach(ctx, e.NonSlotDevices(), first, float32(4))
		require.NoError(t, err)
		assert.Equal(t, []any{float32(4)}, results)
	}
}

func TestANonSlotUpdateNamesTheDevicesThatItRunsOn(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowMirrored})
	e := eager.Of(s)
	f := func(u *eager.UpdateContext, _ ...any) (any, error) { return u.ReplicaID(), nil }
	results, err := e.UpdateNonSlotEach(ctx, e.NonSlotDevices(), f)
	require.NoError(t, err)
	assert.Len(t, results, 2)
	_, err = e.UpdateNonSlotEach(ctx, []string{"/device:TPU:99"}, f)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	_, err = e.UpdateNonSlotEach(ctx, append(e.NonSlotDevices(), e.NonSlotDevices()...), f)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
}
