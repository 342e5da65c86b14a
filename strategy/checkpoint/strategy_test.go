package checkpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// run is a manager whose Save waits for the background work.
type run struct{ *checkpoint.Manager }

func (r run) Save(ctx context.Context, step int64, g checkpoint.Group, opts checkpoint.SaveOptions) error {
	return errors.Join(r.Manager.Save(ctx, step, g, opts), r.Wait(ctx))
}

func openRun(t testing.TB, opts ...checkpoint.ManagerOptions) run {
	return runIn(t, t.TempDir(), opts...)
}

// runIn returns a run that saves to a folder.
func runIn(t testing.TB, dir string, opts ...checkpoint.ManagerOptions) run {
	t.Helper()
	m, err := checkpoint.OpenManager(context.Background(), dir, append(opts, checkpoint.ManagerOptions{})[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return run{m}
}

// restoration restores the last checkpoint.
func restoration(t testing.TB, d run, g checkpoint.Group, opts checkpoint.RestoreOptions) {
	t.Helper()
	c, err := d.Latest(context.Background())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Restore(context.Background(), g, opts))
}

// splits returns the ways to shard an 8x4 matrix over p logical devices.
func splits(p int) []logical.Annotation {
	all := []logical.Annotation{{}, logical.Replicated(), logical.SplitInto(p, 1), logical.SplitInto(1, p)}
	if p == 4 {
		all = append(all, logical.SplitInto(2, 2))
	}
	return all
}

// Variables are saved with every number of replicas, logical devices and sharding, and restored
// with every other.
func TestWhatIsRestoredIsWhatWasSaved(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 8)
	rng := rand.New(rand.NewPCG(11, 12))
	type layout struct {
		name  string
		group checkpoint.Group
		own   []*strategy.Variable
		sum   *strategy.Variable
	}
	var layouts []layout
	for _, size := range [][2]int{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {2, 2}, {4, 2}, {1, 4}, {2, 4}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: size[0], LogicalDevices: size[1]})
		for _, a := range splits(size[1]) {
			l := layout{name: fmt.Sprintf("%dx%d %s", size[0], size[1], a)}
			add := func(initial any, opts strategy.VariableOptions) *strategy.Variable {
				v, err := s.NewVariable(ctx, initial, opts)
				require.NoError(t, err)
				l.own, l.group = append(l.own, v), l.group.With(v)
				return v
			}
			add(tensors.FromScalarAndDimensions(float32(0), 8, 4), strategy.VariableOptions{Name: "matrix", Annotation: a})
			add(tensors.FromScalarAndDimensions(int8(0), 8, 4), strategy.VariableOptions{Name: "bytes", Annotation: a})
			add(int64(0), strategy.VariableOptions{Name: "step"})
			l.sum = add(tensors.FromScalarAndDimensions(float32(0), 8, 4), strategy.VariableOptions{
				Name: "sum", Annotation: a, Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
			layouts = append(layouts, l)
		}
	}
	d := openRun(t, checkpoint.ManagerOptions{Retention: checkpoint.Retention{Last: 1}})
	for step, from := range layouts {
		matrix, bytes, sum := make([]float32, 32), make([]int8, 32), make([]float32, 32)
		for i := range matrix {
			matrix[i], bytes[i] = float32(rng.NormFloat64()), int8(rng.IntN(256)-128)
			sum[i] = float32(rng.IntN(1000)) // its division is exact
		}
		values := map[string]*tensors.Tensor{
			"matrix": tensors.FromFlatDataAndDimensions(matrix, 8, 4), "bytes": tensors.FromFlatDataAndDimensions(bytes, 8, 4),
			"step": tensors.FromScalar(rng.Int64()), "sum": tensors.FromFlatDataAndDimensions(sum, 8, 4),
		}
		for _, v := range from.own {
			require.NoError(t, v.Assign(ctx, values[v.Path()]))
		}
		require.NoError(t, d.Save(ctx, int64(step), from.group, checkpoint.SaveOptions{}))
		for _, into := range layouts {
			restoration(t, d, into.group, checkpoint.RestoreOptions{})
			n := into.sum.Strategy().NumReplicasInSync()
			for _, v := range into.own {
				got, err := v.Value(ctx)
				require.NoError(t, err)
				require.Equal(t, values[v.Path()].Value(), got.Value(), "%s from %s to %s", v.Path(), from.name, into.name)
				// All components are written, not only replica 0's.
				last, err := v.Local(ctx, n-1)
				require.NoError(t, err)
				if v == into.sum {
					require.Equal(t, sum[5]/float32(n), tensors.MustCopyFlatData[float32](last)[5])
				} else {
					require.Equal(t, got.Value(), last.Value())
				}
			}
		}
	}
}

func regression(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	h := graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 16))
	y := layers.Dense(rc.Scope("output"), h, true, 1)
	return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
}

// The test compares six consecutive steps with two runs of three steps and a checkpoint between
// them, restored before the first step or after one.
func TestTrainingGoesOnWhereItWas(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 8)
	rng := rand.New(rand.NewPCG(5, 6))
	xs, ys := make([]*tensors.Tensor, 6), make([]*tensors.Tensor, 6)
	for i := range xs {
		x, y := make([]float32, 16*8), make([]float32, 16)
		for j := range x {
			x[j] = float32(rng.NormFloat64())
			y[j/8] += x[j] / 4
		}
		xs[i], ys[i] = tensors.FromFlatDataAndDimensions(x, 16, 8), tensors.FromFlatDataAndDimensions(y, 16, 1)
	}
	type run struct {
		strat *strategy.TPUStrategy
		store *model.Store
		train *train.Step
	}
	begin := func(replicas, p int) run {
		opts := strategy.Options{Replicas: replicas, LogicalDevices: p}
		if p > 1 {
			opts.Variables = logical.Rules{logical.Match(`hidden/.*weights`, logical.SplitInto(1, p))}
		}
		r := run{strat: strategytest.On(t, sys, opts), store: model.NewStore()}
		r.store.SetParam(model.ParamInitialSeed, int64(7))
		r.train = strategytest.OK(train.New(r.strat, r.store, optimizer.Adam().LearningRate(0.05).Done(), regression,
			train.Options{}))
		return r
	}
	steps := func(r run, from, to int) (losses []float64) {
		for i := from; i < to; i++ {
			loss, err := r.train.Run(ctx, xs[i], ys[i])
			require.NoError(t, err)
			x, err := loss.Float64(ctx)
			require.NoError(t, err)
			losses = append(losses, x)
		}
		return losses
	}
	whole := begin(2, 2)
	want := steps(whole, 0, 6)

	first := begin(2, 2)
	steps(first, 0, 3)
	d := openRun(t)
	require.NoError(t, d.Save(ctx, 3, checkpoint.StrategyGroup(first.strat, first.store), checkpoint.SaveOptions{}))
	require.Equal(t, want[3:], steps(first, 3, 6), "a save changes nothing")
	restoration(t, d, checkpoint.StrategyGroup(first.strat, first.store), checkpoint.RestoreOptions{})
	require.Equal(t, want[3:], steps(first, 3, 6), "back in the same run")

	for _, size := range [][2]int{{2, 2}, {1, 1}, {4, 1}, {8, 1}, {1, 4}, {4, 2}} {
		second := begin(size[0], size[1])
		restoration(t, d, checkpoint.StrategyGroup(second.strat, second.store), checkpoint.RestoreOptions{})
		got := steps(second, 3, 6)
		if size == [2]int{2, 2} {
			require.Equal(t, want[3:], got)
		}
		require.InDeltaSlice(t, want[3:], got, 1e-5, "%v", size)

		third := begin(size[0], size[1])
		steps(third, 4, 5) // the variables are on the devices
		restoration(t, d, checkpoint.StrategyGroup(third.strat, third.store), checkpoint.RestoreOptions{})
		require.Equal(t, got, steps(third, 3, 6), "%v", size)
	}

	// The same file fills a store without a strategy.
	bare := model.NewStore()
	restoration(t, d, checkpoint.StoreGroup(bare), checkpoint.RestoreOptions{})
	require.Equal(t, first.store.NumVariables(), bare.NumVariables())
	for v := range first.store.IterVariables() {
		same := bare.GetVariable(v.Path())
		require.NotNil(t, same, v.Path())
		require.Equal(t, v.Trainable, same.Trainable, v.Path())
		require.True(t, v.Shape().Equal(same.Shape()))
	}
	c, err := d.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	for _, info := range c.Variables() {
		saved, err := c.Tensor(ctx, info.Path)
		require.NoError(t, err)
		require.True(t, saved.Equal(bare.GetVariable(info.Path).MustValue()), info.Path)
	}
}

// The random number state is restored on meshes of all sizes. Replicas that exist on both meshes
// draw the same numbers. A single replica draws from the state itself.
func TestRandomNumbersGoOnWhereTheyWere(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 8)
	type mesh struct {
		replicas int
		group    func() checkpoint.Group
		draw     func() []any
	}
	var meshes []mesh
	for _, size := range [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}} {
		s, store := strategytest.On(t, sys, strategy.Options{Replicas: size[0], LogicalDevices: size[1]}),
			strategytest.SeededStore()
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.Scope().RandomUniform(rc.Graph(), shapes.Make(dtypes.Float32, 8))}
		}, strategy.FunctionOptions{Store: store})
		meshes = append(meshes, mesh{size[0], func() checkpoint.Group { return checkpoint.StrategyGroup(s, store) },
			func() []any {
				out, err := f.Run(ctx)
				require.NoError(t, err)
				return strategytest.Values(t, out[0], size[0])
			}})
	}
	for i, m := range meshes {
		m.draw()
		d := openRun(t)
		require.NoError(t, d.Save(ctx, 1, m.group(), checkpoint.SaveOptions{}))
		want := [][]any{m.draw(), m.draw()}
		for j, other := range meshes {
			restoration(t, d, other.group(), checkpoint.RestoreOptions{})
			for step := range want {
				got := other.draw()
				if n := min(m.replicas, other.replicas); n > 1 || i == j {
					require.Equal(t, want[step][:n], got[:n], "%d replicas on %d, step %d", m.replicas, other.replicas, step)
				}
			}
		}
	}
}

// setComponents assigns a different number to each replica's component.
func setComponents(t *testing.T, v *strategy.Variable, values []float64) {
	t.Helper()
	s := v.Strategy()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.Assign(v, graph.ConvertDType(in[0], v.Shape().DType))}
	}, strategy.FunctionOptions{})
	var each []any
	for _, x := range values {
		each = append(each, x)
	}
	x, err := s.PerReplica(context.Background(), each, logical.Annotation{})
	require.NoError(t, err)
	defer x.Close()
	out, err := f.Run(context.Background(), x)
	require.NoError(t, err)
	require.NoError(t, out[0].Close())
}

// TestGoldenCheckpoints runs TensorFlow's recorded saves and restores.
func TestGoldenCheckpoints(t *testing.T) {
	data, err := os.ReadFile("../../testdata/goldens/strategy_semantics.json")
	require.NoError(t, err)
	type outcome struct {
		Saved    float64
		Restored json.RawMessage
		Error    any
	}
	var goldens struct {
		Cases []struct {
			Section, Name   string
			Inputs, Outputs json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(data, &goldens))
	sys := plugintest.System(t, 4)
	two := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 2})
	four := strategytest.On(t, sys, strategy.Options{Replicas: 4, LogicalDevices: 1})
	ctx := context.Background()
	ran := 0
	for _, golden := range goldens.Cases {
		if golden.Section != "checkpoint" {
			continue
		}
		ran++
		var inputs struct{ Components []float64 }
		var outputs struct {
			Same  *outcome
			Four  *outcome `json:"into_4_replicas"`
			Plain *outcome `json:"into_plain_variable"`
		}
		require.NoError(t, json.Unmarshal(golden.Inputs, &inputs))
		require.NoError(t, json.Unmarshal(golden.Outputs, &outputs))
		if outputs.Same == nil {
			outputs.Same = &outcome{}
			require.NoError(t, json.Unmarshal(golden.Outputs, outputs.Same))
		}
		t.Run(golden.Name, func(t *testing.T) {
			opts := strategy.VariableOptions{Name: "v"}
			if strings.Contains(golden.Name, "ON_READ") {
				opts.Synchronization = strategy.OnRead
			} else {
				opts.LocalWrites = strings.Contains(golden.Name, "diverged")
			}
			for a := strategy.AggregateNone; a <= strategy.AggregateFirst; a++ {
				if strings.Contains(golden.Name, "aggregation "+a.String()) || strings.Contains(golden.Name, "int64 "+a.String()) {
					opts.Aggregation = a
				}
			}
			initial := any(float64(0))
			if strings.Contains(golden.Name, "int64") {
				initial = int64(0)
			}
			variable := func(s *strategy.TPUStrategy, opts strategy.VariableOptions) *strategy.Variable {
				v, err := s.NewVariable(ctx, initial, opts)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, v.Close()) })
				return v
			}
			saved := variable(two, opts)
			if opts.Synchronization == strategy.OnRead || opts.LocalWrites {
				setComponents(t, saved, inputs.Components)
			} else {
				require.NoError(t, saved.Assign(ctx, inputs.Components[0]))
			}
			d := openRun(t)
			err := d.Save(ctx, 1, checkpoint.Group{}.With(saved), checkpoint.SaveOptions{})
			want := []*outcome{outputs.Same, outputs.Four, outputs.Plain}
			if want[0].Error != nil {
				require.ErrorIs(t, err, checkpoint.ErrVariable)
				require.ErrorContains(t, err, `variable "v": `)
				steps, err := d.Steps(ctx)
				require.NoError(t, err)
				require.Empty(t, steps)
				return
			}
			require.NoError(t, err)
			c, err := d.Latest(ctx)
			require.NoError(t, err)
			defer c.Close()
			value, err := c.Tensor(ctx, "v")
			require.NoError(t, err)
			for i, into := range []*strategy.Variable{saved, variable(four, opts),
				variable(two, strategy.VariableOptions{Name: "v"})} {
				if want[i] == nil {
					continue
				}
				require.InDelta(t, want[i].Saved, strategytest.Numbers(t, value)[0], 0)
				require.NoError(t, c.Restore(ctx, checkpoint.Group{}.With(into), checkpoint.RestoreOptions{}))
				var components []float64
				if i == 2 {
					var plain struct{ Variable float64 }
					require.NoError(t, json.Unmarshal(want[i].Restored, &plain))
					components = []float64{plain.Variable, plain.Variable}
				} else {
					require.NoError(t, json.Unmarshal(want[i].Restored, &components))
				}
				for r, x := range components {
					local, err := into.Local(ctx, r)
					require.NoError(t, err)
					require.InDelta(t, x, strategytest.Numbers(t, local)[0], 0, "restore %d, replica %d", i, r)
				}
			}
		})
	}
	require.GreaterOrEqual(t, ran, 10)
}
