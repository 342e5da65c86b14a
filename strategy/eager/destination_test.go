package eager_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// sizes returns the dimensions of each device's shard.
func sizes(shards []strategy.Shard) map[string][]int {
	all := map[string][]int{}
	for _, s := range shards {
		all[s.Device] = s.Size
	}
	return all
}

// A value that is reduced to a sharded variable has the sharding of the variable.
func TestReductionsGoWhereTheirDestinationIs(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	e := eager.Of(s)
	rows := func(k float32) [][]float32 { return [][]float32{{k, 2}, {3, 4}, {5, 6}, {7, 8}} }
	v, err := s.NewVariable(ctx, rows(0), strategy.VariableOptions{Annotation: logical.SplitInto(2, 1)})
	require.NoError(t, err)
	x, err := s.PerReplica(ctx, []any{rows(1), rows(3)}, logical.Annotation{})
	require.NoError(t, err)
	small, err := s.PerReplica(ctx, []any{float32(1), float32(2)}, logical.Annotation{})
	require.NoError(t, err)
	columns, err := s.PerReplica(ctx, []any{rows(1), rows(3)}, logical.SplitInto(1, 2))
	require.NoError(t, err)
	want := [][]float32{{4, 4}, {6, 8}, {10, 12}, {14, 16}}
	for name, c := range map[string]struct {
		value any
		to    eager.Destination
		size  []int
		want  any
	}{
		"to a split variable":              {x, eager.To(v), []int{2, 2}, want},
		"of another split":                 {columns, eager.To(v), []int{2, 2}, want},
		"to a split value":                 {x, eager.To(columns), []int{4, 1}, want},
		"to itself":                        {columns, eager.To(columns), []int{4, 1}, want},
		"of another shape":                 {small, eager.To(v), []int{}, float32(3)},
		"to all devices":                   {x, eager.ToDevices(e.WorkerDevices(ctx)...), []int{4, 2}, want},
		"a variable to itself":             {v, eager.To(v), []int{2, 2}, [][]float32{{0, 4}, {6, 8}, {10, 12}, {14, 16}}},
		"in a nest, to the split variable": {x, eager.To(v), []int{2, 2}, want},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := e.ReduceTo(ctx, strategy.Sum, c.value, c.to)
			require.NoError(t, err)
			m := got.(*strategy.Mirrored)
			require.Len(t, m.Shards(), 4)
			for device, size := range sizes(m.Shards()) {
				require.Equal(t, c.size, size, device)
			}
			for r := range 2 {
				got, err := m.Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, c.want, got.Value())
			}
			require.NoError(t, m.Close())
			require.Empty(t, m.Shards())
		})
	}
	require.Equal(t, "[2:4 0:2] on "+v.Shards()[1].Device, v.Shards()[1].String())
}

// If the destination is some devices, only these have the result. A call that uses the result
// copies it to the other devices.
func TestReductionsToSomeDevicesAreThereAlone(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	e := eager.Of(s)
	second, err := e.LogicalDevice(ctx, 1)
	require.NoError(t, err)
	x, err := s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.SplitInto(2))
	require.NoError(t, err)
	for name, devices := range map[string][]string{
		"one device":              e.WorkerDevices(ctx)[1:],
		"another logical device":  e.WorkerDevices(second)[:1],
		"two of different kinds":  {e.WorkerDevices(second)[1], e.WorkerDevices(ctx)[0]},
		"both of the one replica": {e.WorkerDevices(ctx)[0], e.WorkerDevices(second)[0]},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := e.ReduceTo(ctx, strategy.Sum, x, eager.ToDevices(devices...))
			require.NoError(t, err)
			m := got.(*strategy.Mirrored)
			require.ElementsMatch(t, devices, func() (all []string) {
				for _, s := range m.Shards() {
					require.Equal(t, []int{2}, s.Size, "a device holds all of it")
					require.Equal(t, 8, s.Bytes)
					all = append(all, s.Device)
				}
				return all
			}())
			for r := range 2 {
				got, err := m.Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, []float32{4, 6}, got.Value())
			}
			// The result is accepted as an argument.
			double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{graph.Add(in[0], in[0])}
			}, strategy.FunctionOptions{})
			out, err := double.Run(ctx, m)
			require.NoError(t, err)
			require.Equal(t, []any{[]float32{8, 12}, []float32{8, 12}}, strategytest.Values(t, out[0], 2))
			b, err := double.Bind(ctx, m)
			require.NoError(t, err)
			require.NoError(t, b.Launch(ctx))
			require.Equal(t, []any{[]float32{8, 12}, []float32{8, 12}}, strategytest.Values(t, b.Results()[0], 2))
			require.NoError(t, b.Close())
			v, err := s.NewVariable(ctx, []float32{0, 0}, strategy.VariableOptions{Annotation: logical.SplitInto(2)})
			require.NoError(t, err)
			require.NoError(t, v.Assign(ctx, m))
			require.Equal(t, []any{[]float32{4, 6}, []float32{4, 6}}, strategytest.Values(t, v, 2))
			mean, err := s.Reduce(ctx, strategy.Mean, m)
			require.NoError(t, err)
			require.Len(t, mean.Shards(), 4)
			require.Len(t, m.Shards(), len(devices), "it is still there alone")
			require.NoError(t, m.Close())
		})
	}
	_, err = e.ReduceTo(ctx, strategy.Sum, x, eager.ToDevices("/device:TPU:99"))
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	// It is an error in a step, because a step runs on all devices.
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
			return []*eager.MergeValue{strategytest.OK(e.ReduceTo(mc.Context(), strategy.Sum, args[0],
				eager.ToDevices(e.WorkerDevices(ctx)[0]))).(*eager.MergeValue)}
		}, in...)
	}, strategy.FunctionOptions{})
	_, err = f.Run(ctx, x)
	require.ErrorContains(t, err, "a compiled step that runs on all")
}

// A slot has the sharding of its variable.
func TestASlotIsSplitAsItsVariable(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2,
		Variables: logical.Rules{logical.Match("own", logical.SplitInto(1, 2))}})
	e := eager.Of(s)
	rows := tensors.FromValue([][]float32{{1, 2}, {3, 4}})
	v, err := s.NewVariable(ctx, rows, strategy.VariableOptions{Name: "v", Annotation: logical.SplitInto(2, 1)})
	require.NoError(t, err)
	scope, err := eager.Of(s).Scope(ctx)
	require.NoError(t, err)
	beside, err := e.ColocateVarsWith(scope, v)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		ctx     context.Context
		initial any
		opts    strategy.VariableOptions
		size    []int
	}{
		"by the option":    {ctx, rows, strategy.VariableOptions{ColocateWith: v}, []int{1, 2}},
		"by the context":   {beside, rows, strategy.VariableOptions{}, []int{1, 2}},
		"of another shape": {beside, float32(0), strategy.VariableOptions{}, []int{}},
		"of another rank":  {beside, []float32{1, 2}, strategy.VariableOptions{}, []int{2}},
		"with an annotation of its": {beside, rows, strategy.VariableOptions{Annotation: logical.SplitInto(1, 2)},
			[]int{2, 1}},
		"whole on purpose": {beside, rows, strategy.VariableOptions{Annotation: logical.Replicated()}, []int{2, 2}},
		"of a rule's name": {beside, rows, strategy.VariableOptions{Name: "own"}, []int{1, 2}},
		"beside nothing":   {scope, rows, strategy.VariableOptions{}, []int{2, 2}},
	} {
		slot, err := s.NewVariable(c.ctx, c.initial, c.opts)
		require.NoError(t, err, name)
		require.Len(t, slot.Shards(), 4)
		for device, size := range sizes(slot.Shards()) {
			require.Equal(t, c.size, size, "%s on %s", name, device)
		}
	}
	// Devices returns the devices of the components, and Shards all devices with their shards.
	require.Len(t, v.Devices(), 2)
	held := sizes(v.Shards())
	require.Len(t, held, 4)
	for _, name := range v.Devices() {
		require.Contains(t, held, name)
	}
}

// A destination may be a host. The result is then in its memory.
func TestReductionsToAHostAreInItsMemory(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	// On a CPU, device 0 has the same name as the host, so it is excluded.
	assignment, err := tpu.NewDeviceAssignment(sys.Topology(),
		[][]tpu.Coordinates{{sys.Topology().DeviceCoordinates()[0][2]}, {sys.Topology().DeviceCoordinates()[0][3]}})
	require.NoError(t, err)
	s := strategytest.On(t, sys, strategy.Options{Assignment: assignment})
	e := eager.Of(s)
	x, err := s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.Annotation{})
	require.NoError(t, err)
	got, err := e.BatchReduceTo(ctx, strategy.Mean,
		[]eager.ReducePair{{Value: x, To: eager.ToDevices(e.NonSlotDevices()...)}, {Value: x, To: eager.To(x)}})
	require.NoError(t, err)
	require.Equal(t, []float32{2, 3}, got[0].(*tensors.Tensor).Value())
	require.Len(t, got[1].(*strategy.Mirrored).Shards(), 2)
	_, err = e.ReduceTo(ctx, strategy.Sum, x, eager.ToDevices(append(e.NonSlotDevices(), e.WorkerDevices(ctx)...)...))
	require.ErrorContains(t, err, "a host beside devices")
}

// State that belongs to no variable is stored only on the non-slot devices.
func TestNonSlotDevicesAreThoseThatHoldTheState(t *testing.T) {
	ctx := context.Background()
	fn := func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Device(), nil }
	for _, semantics := range []strategy.Semantics{strategy.OwnSemantics, strategy.TensorFlowTPU,
		strategy.TensorFlowMirrored} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2,
			Semantics: semantics})
		e := eager.Of(s)
		for _, wrong := range [][]string{{"/device:CPU:99"}, {"anything"}, {e.NonSlotDevices()[0], "anything"}, nil} {
			_, err := e.UpdateNonSlot(ctx, wrong, fn)
			require.Error(t, err, "%q", wrong)
			require.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
		}
		if semantics != strategy.TensorFlowMirrored {
			_, err := e.UpdateNonSlot(ctx, e.WorkerDevices(ctx)[1:], fn)
			require.ErrorContains(t, err, "runs on the first host")
		}
		got, err := e.UpdateNonSlotEach(ctx, e.NonSlotDevices(), fn)
		require.NoError(t, err)
		require.Len(t, got, len(e.NonSlotDevices()))
		for i, device := range e.NonSlotDevices() {
			require.Equal(t, device, got[i])
		}
	}
}
