package strategy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// manyVariables creates variables of all kinds in a store, large and small ones, and a step that
// uses all of them.
func manyVariables(seed int64) (*model.Store, strategy.StepFunc, []string) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, seed)
	root := store.RootScope()
	table := tensors.FromValue([]float32{1, 2, 3, 4})
	own := func(g *graph.Graph, shape shapes.Shape) *graph.Node { // reads another variable
		return graph.Add(graph.Zeros(g, shape), graph.ReduceAllSum(store.GetVariable("/given").NodeValue(g)))
	}
	all := []struct {
		name  string
		init  model.VariableInitializer
		shape shapes.Shape
	}{
		{"small", initializer.RandomUniformFn(root, -1, 1), shapes.Make(dtypes.Float32, 4, 4)},
		{"uniform", initializer.RandomUniformFn(root, -1, 1), shapes.Make(dtypes.Float32, 128, 256)},
		{"same", initializer.RandomUniformFn(root, -1, 1), shapes.Make(dtypes.Float32, 128, 256)},
		{"bias", initializer.Zero, shapes.Make(dtypes.Float32, 256)},
		{"odd", initializer.XavierUniformFn(store), shapes.Make(dtypes.Float32, 4, 87, 93)},
		{"half", initializer.RandomUniformFn(root, 0, 1), shapes.Make(dtypes.BFloat16, 256, 258)},
		{"double", initializer.RandomUniformFn(root, 0, 1), shapes.Make(dtypes.Float64, 64, 256)},
		{"zeros", initializer.Zero, shapes.Make(dtypes.Float32, 256, 512)},
		{"normal", initializer.HeFn(store), shapes.Make(dtypes.Float32, 128, 512)},
		{"small/after", initializer.RandomUniformFn(root, -1, 1), shapes.Make(dtypes.Float32, 4, 4)},
		{"constant", initializer.BroadcastTensorToShape(table), shapes.Make(dtypes.Float32, 4096, 8, 4)},
		{"reads", own, shapes.Make(dtypes.Float32, 128, 256)},
		{"row", initializer.RandomUniformFn(root, -1, 1), shapes.Make(dtypes.Float32, 1, 1<<15, 1)},
	}
	store.RootScope().VariableWithValue("given", []float32{1, 2})
	var names []string
	for _, v := range all {
		names = append(names, "/"+v.name)
	}
	step := func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		sum := graph.Const(rc.Graph(), float32(0))
		for _, v := range all {
			x := store.VariableWithShape("/"+v.name, v.shape, v.init)
			sum = graph.Add(sum, graph.ConvertDType(graph.ReduceAllSum(x.NodeValue(rc.Graph())), dtypes.Float32))
		}
		return []*graph.Node{sum}
	}
	return store, step, names
}

func bytesOf(t *testing.T, x *tensors.Tensor) (data string) {
	t.Helper()
	require.NoError(t, x.ConstBytes(func(b []byte) { data = string(b) }))
	return data
}

// closeTo compares results of the host and the devices for the same random bits. The devices'
// compiler fuses products and sums, and has other logarithms.
func closeTo(t *testing.T, a, b *tensors.Tensor) bool {
	t.Helper()
	if bytesOf(t, a) == bytesOf(t, b) {
		return true
	}
	return a.Shape().Equal(b.Shape()) && a.DType().IsFloat() && a.InDelta(b, 2e-5)
}

// TestFirstValuesAreTheSameOnEveryMesh compares the values on several meshes with each other and
// with GoMLX's own initialization.
func TestFirstValuesAreTheSameOnEveryMesh(t *testing.T) {
	ctx := context.Background()
	_, _, names := manyVariables(7)
	want := gomlxs(t, 7)
	var first map[string]string
	for _, mesh := range [][2]int{{1, 1}, {1, 4}, {4, 2}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			p := mesh[1]
			rules := logical.Rules{
				logical.Match("uniform|normal", logical.SplitInto(1, p)), logical.Match("half|same|double|zeros|reads",
					logical.SplitInto(p, 1)),
				logical.Match("odd", logical.SplitInto(p, 1, 1)), logical.Match("constant", logical.SplitInto(1, p, 1)),
				logical.Match("row", logical.SplitInto(1, p, 1)),
			}
			s := strategytest.On(t, plugintest.System(t, 8), strategy.Options{Replicas: mesh[0], LogicalDevices: p,
				Variables: rules})
			store, step, _ := manyVariables(7)
			_, err := s.Function(step, strategy.FunctionOptions{Store: store}).Run(ctx)
			require.NoError(t, err)
			made := s.Variables(store).FirstValues()
			assert.Equal(t, 9, made.OnDevices, "large variables that depend on no other")
			assert.Equal(t, 4, made.OnHost)
			assert.Positive(t, made.Compiling)
			if p == 1 { // otherwise they are split differently
				assert.Equal(t, 8, made.Programs, "one for two variables of a kind")
			}
			values := map[string]string{}
			for _, name := range names {
				v, ok := s.Variables(store).Lookup(name)
				require.True(t, ok, name)
				value, err := v.Value(ctx)
				require.NoError(t, err)
				values[name] = bytesOf(t, value)
				inStore, err := store.GetVariable(name).Value()
				require.NoError(t, err)
				assert.True(t, closeTo(t, inStore, value), "%s in the store", name)
				expected, err := want.GetVariable(name).Value()
				require.NoError(t, err)
				assert.True(t, closeTo(t, expected, value), "%s as GoMLX makes it", name)
			}
			if first == nil {
				first = values
			}
			for _, name := range names {
				assert.True(t, first[name] == values[name], "%s is as on one device", name)
			}
			path := "/" + model.RNGStateVariableName // its third word is not set there
			before, err := want.GetVariable(path).Value()
			require.NoError(t, err)
			after, err := store.GetVariable(path).Value()
			require.NoError(t, err)
			assert.Equal(t, tensors.MustCopyFlatData[uint64](before)[:2], tensors.MustCopyFlatData[uint64](after)[:2])
		})
	}
}

// gomlxs returns the values that GoMLX's own initialization computes for manyVariables.
func gomlxs(t *testing.T, seed int64) *model.Store {
	t.Helper()
	// The trace creates the variables in the store, without values.
	store, step, _ := manyVariables(seed)
	_, err := strategytest.New(t, 1, 1).Function(step,
		strategy.FunctionOptions{Store: store}).Lowered(context.Background())
	require.NoError(t, err)
	host, err := gobackend.New("")
	require.NoError(t, err)
	require.NoError(t, store.InitializeVariables(host, nil))
	return store
}

func TestFirstValuesOfAStoreThatMovesOn(t *testing.T) {
	ctx := context.Background()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(3))
	names := []string{"/small", "/uniform", "/zeros"}
	step := func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		uniform := initializer.RandomUniformFn(store.RootScope(), -1, 1)
		store.VariableWithShape("/small", shapes.Make(dtypes.Float32, 4, 4), uniform)
		store.VariableWithShape("/uniform", shapes.Make(dtypes.Float32, 128, 256), uniform)
		store.VariableWithShape("/zeros", shapes.Make(dtypes.Float32, 256, 512), initializer.Zero)
		var all []*graph.Node
		for _, name := range names {
			all = append(all, graph.ReduceAllSum(store.GetVariable(name).NodeValue(rc.Graph())))
		}
		return all
	}
	read := func(p int) map[string]string {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalDevices: p,
			Variables: logical.Rules{logical.Match("uniform", logical.SplitInto(1, p))}})
		_, err := s.Function(step, strategy.FunctionOptions{Store: store}).Run(ctx)
		require.NoError(t, err)
		values := map[string]string{}
		for _, name := range names {
			v, _ := s.Variables(store).Lookup(name)
			value, err := v.Value(ctx)
			require.NoError(t, err)
			values[name] = bytesOf(t, value)
		}
		require.NoError(t, s.Close())
		return values
	}
	first := read(1)
	for name, value := range read(4) {
		assert.True(t, first[name] == value, name)
	}
}

func TestRestoredVariablesAreNotMade(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 2)
	store, step, names := manyVariables(3)
	f := s.Function(step, strategy.FunctionOptions{Store: store})
	_, err := f.Lowered(ctx)
	require.NoError(t, err)
	for _, name := range names {
		v, ok := s.Variables(store).Lookup(name)
		require.True(t, ok)
		require.NoError(t, v.Assign(ctx, tensors.FromShape(v.Shape())))
	}
	_, err = f.Run(ctx)
	require.NoError(t, err)
	assert.Zero(t, s.Variables(store).FirstValues())
}

func TestTwoFunctionsMakeVariablesInTurn(t *testing.T) {
	ctx := context.Background()
	x := [][]float32{{1, 2}}
	values := func(meshes [2]int) (all []string) {
		s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: meshes[0], LogicalDevices: meshes[1]})
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(1))
		layer := func(name string) train.Loss {
			return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				y := layers.Dense(rc.Scope(name, "wide"), in[0], true, 1<<14)
				return graph.ReduceAllMean(layers.Dense(rc.Scope(name, "out"), y, true, 2))
			}
		}
		for _, name := range []string{"a", "b"} {
			_, err := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().WithLearningRate(0).Done(),
				layer(name), train.Options{})).Bind(ctx, x)
			require.NoError(t, err)
		}
		for _, v := range s.Variables(store).All() {
			value, err := v.Value(ctx)
			require.NoError(t, err)
			all = append(all, v.Path()+bytesOf(t, value))
		}
		return all
	}
	assert.Equal(t, values([2]int{1, 1}), values([2]int{1, 2}))
}

// TestHostsAgreeOnFirstValues uses processes without a seed: all processes then use the random
// numbers of the first process. A replica belongs to one process, or to both.
func TestHostsAgreeOnFirstValues(t *testing.T) {
	for _, mesh := range [][2]int{{2, 2}, {1, 4}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) { hostsAgreeOnFirstValues(t, mesh[0], mesh[1]) })
	}
}

func hostsAgreeOnFirstValues(t *testing.T, replicas, logicalDevices int) {
	var mu sync.Mutex
	var sums []string
	strategytest.NoErrors(t, strategytest.OnProcesses(t, plugintest.System(t, 4), simhost.Options{Processes: 2,
		Patience: time.Minute}, strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices, Variables: logical.Rules{
		logical.Match("large", logical.SplitInto(1, logicalDevices))}}, func(ctx context.Context,
		s *strategy.TPUStrategy) error {
		store := model.NewStore()
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			var sums []*graph.Node
			for _, v := range []*model.Variable{
				rc.Scope().VariableWithShape("small", shapes.Make(dtypes.Float32, 3, 3)),
				rc.Scope().VariableWithShape("large", shapes.Make(dtypes.Float32, 128, 256)),
				rc.Scope().VariableWithShape("whole", shapes.Make(dtypes.Float32, 128, 256)),
				rc.Scope().VariableWithShape("after", shapes.Make(dtypes.Float32, 3, 3)),
			} {
				sums = append(sums, graph.ReduceAllSum(v.NodeValue(rc.Graph())))
			}
			return sums
		}, strategy.FunctionOptions{Store: store})
		out, err := f.Run(ctx)
		if err != nil {
			return err
		}
		text := ""
		for _, x := range out {
			value, err := x.Local(ctx, s.LocalReplicas()[0])
			if err != nil {
				return err
			}
			text += value.String() + " "
		}
		mu.Lock()
		defer mu.Unlock()
		sums = append(sums, text)
		return nil
	}))
	assert.Equal(t, sums[0], sums[1])
}
