package nest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
)

// The result of a step has the structure of its arguments, and each leaf has its own values on each
// replica.
func TestNestsGoThroughAStep(t *testing.T) {
	leaktest.Check(t)
	ctx := context.Background()
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {4, 1}, {2, 2}} {
		replicas := mesh[0]
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: replicas, LogicalDevices: mesh[1]})
		variable, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
		require.NoError(t, err)
		m := &nestMaker{t, rand.New(rand.NewPCG(uint64(mesh[0]), uint64(mesh[1]))), s, replicas, variable}
		traces := 0
		f := nest.New(s, func(rc *strategy.ReplicaContext, args []any) any {
			traces++
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			id = graph.Add(id, rc.Read(variable)) // so that a nest without tensors has a program too
			got := mapped(args, func(x any) any {
				if node, ok := x.(*graph.Node); ok {
					return graph.Add(node, id)
				}
				if _, ok := x.(time.Duration); ok {
					return nil
				}
				return x
			})
			return pair{got, id}
		}, strategy.FunctionOptions{})
		for range 12 {
			args, wants := make([]any, m.rng.IntN(3)), []any{}
			for i := range args {
				var want any
				args[i], want = m.make(4)
				wants = append(wants, want)
			}
			want := mapped(wants, func(x any) any {
				all, ok := x.(replicaValues)
				if !ok {
					return x
				}
				out := make(replicaValues, replicas)
				for r, x := range all {
					plus := float32(r + 1)
					switch x := x.(type) {
					case float32:
						out[r] = x + plus
					case []float32:
						out[r] = []float32{x[0] + plus, x[1] + plus}
					}
				}
				return out
			})
			var ids replicaValues
			for r := range replicas {
				ids = append(ids, float32(r+1))
			}
			before := traces
			for range 2 { // the second run uses the compiled program
				out, err := f.Run(ctx, args...)
				require.NoError(t, err)
				require.Equal(t, pair{want, ids}, localValues(t, out, replicas), "%v of %v", mesh, args)
				closeAll(t, out)
			}
			require.LessOrEqual(t, traces, before+1)
			mapped(args, func(x any) any {
				if v, ok := x.(strategy.Value); ok {
					require.NoError(t, v.Ready(ctx), "it stays the caller's")
					require.NoError(t, v.Close())
				}
				return nil
			})
		}
	}
}

type level int

// The step is traced once for each static value, structure and shape.
func TestEachStaticIsTracedOnce(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	w, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	var adders []func(*graph.Node) *graph.Node
	for n := range 3 {
		adders = append(adders, func(x *graph.Node) *graph.Node { return graph.AddScalar(x, float64(n)) })
	}
	add1, add2 := adders[1], adders[2]
	both := func(x any) any { return strategy.NewObjects(x, x) }
	x := []float32{1}
	calls := [][]any{
		{x}, {x, nil}, {x, "a"}, {x, "b"}, {x, level(1)}, {x, level(2)}, {x, time.Duration(1)},
		{x, add1}, {x, add2}, {x, v}, {x, w}, {x, &level2}, {x, [2]int{1, 2}}, {x, both(3)}, {x, both(4)},
		{x, []any{}}, {x, map[string]any{}}, {x, map[int]any{}}, {x, []any{nil}}, {x, []any{"a"}}, {x, pair{}},
		{x, pair{A: "a"}}, {x, pair{B: "a"}},
		{[]any{x}}, {[]any{x}, []any{}}, {map[string]any{"x": x}}, {map[string]any{"y": x}}, {[]float32{1, 2}}, {[]int32{1}},
		{"a", x}, {x, struct{ a any }{"a"}},
	}
	traces := 0
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		traces++
		var first *graph.Node
		mapped(args, func(x any) any {
			if node, ok := x.(*graph.Node); ok {
				first = node
			}
			return x
		})
		if len(args) > 1 {
			if add, ok := args[1].(func(*graph.Node) *graph.Node); ok {
				return add(first)
			}
		}
		return graph.Neg(first)
	}, strategy.FunctionOptions{})
	for range 2 {
		for i, args := range calls {
			out, err := f.Run(ctx, args...)
			require.NoError(t, err, "%d: %v", i, args)
			closeAll(t, out)
		}
		require.Equal(t, len(calls), traces)
	}
	for i, want := range []float32{2, 3} {
		out, err := f.Run(ctx, x, []any{add1, add2}[i])
		require.NoError(t, err)
		require.Equal(t, []any{[]float32{want}, []float32{want}}, strategytest.Values(t, out.(*strategy.PerReplica), 2),
			"each closure has its own number")
	}
	// made anew, and equal
	for i, again := range []any{strings.Clone("a"), time.Duration(1), [2]int{1, 2}, both(3), map[string]any{}} {
		out, err := f.Run(ctx, []float32{2}, again)
		require.NoError(t, err, i)
		closeAll(t, out)
	}
	require.Equal(t, len(calls), traces)
}

var level2 = level(2)

// The structure of the result is that of the program that ran.
func TestAResultsStructureMayGoByTheShape(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		x := args[0].(*graph.Node)
		out := map[string]any{}
		for i, k := range []string{"x", "y", "z"}[:x.Shape().Dimensions[0]] {
			out[k] = []any{k, graph.SliceAxis(x, 0, graph.AxisElem(i))}
		}
		return out
	}, strategy.FunctionOptions{})
	for range 2 {
		for n := 1; n <= 3; n++ {
			out, err := f.Run(ctx, []float32{7, 8, 9}[:n])
			require.NoError(t, err)
			require.Len(t, out, n)
			_, err = f.Lowered(ctx, []float32{7, 8, 9}[:n%3+1]) // which is another trace
			require.NoError(t, err)
			x := out.(map[string]any)["x"].([]any)
			require.Equal(t, "x", x[0])
			x[0] = "changed: it is the caller's"
			closeAll(t, out)
		}
	}
}

// A step reads and writes the variables in its arguments.
func TestVariablesInNestsAreWritten(t *testing.T) {
	ctx := context.Background()
	for _, mesh := range [][2]int{{4, 1}, {2, 2}} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		sum, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		local, err := s.NewVariable(ctx, []float32{0, 0}, strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		f := nest.New(s, func(rc *strategy.ReplicaContext, args []any) any {
			model := args[0].(map[string]any)
			x := args[1].(pair).A.(*graph.Node)
			rc.AssignAdd(model["local"].(*strategy.Variable), x)
			return []any{model["sum"], rc.AssignAdd(model["sum"].(*strategy.Variable), graph.ReduceAllSum(x))}
		}, strategy.FunctionOptions{})
		for step := range 3 {
			out, err := f.Run(ctx, map[string]any{"sum": sum, "local": local}, pair{A: []float32{1, 2}})
			require.NoError(t, err)
			require.Same(t, sum, out.([]any)[0])
			total := float32(1 + 3*(step+1)*mesh[0])
			require.Equal(t, slices.Repeat([]any{total}, mesh[0]), strategytest.Values(t, out.([]any)[1].(*strategy.PerReplica),
				mesh[0]))
			require.Equal(t, slices.Repeat([]any{total}, mesh[0]), strategytest.Values(t, sum, mesh[0]))
			n := float32(step + 1)
			require.Equal(t, slices.Repeat([]any{[]float32{n, 2 * n}}, mesh[0]), strategytest.Values(t, local, mesh[0]))
		}
	}
}

// Every host tensor in the nests is split; mirrored values are not.
func TestNestsOfBatchesAreCut(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	scale, err := s.Mirror(ctx, float32(10), logical.Annotation{})
	require.NoError(t, err)
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		b := args[0].(map[string]any)
		return []any{graph.Mul(b["x"].(*graph.Node), b["z"].(*graph.Node)), b["y"].([]any)[0]}
	}, strategy.FunctionOptions{SplitBatch: true})
	out, err := f.Run(ctx, map[string]any{"x": []float32{1, 2, 3, 4}, "y": []any{[][]int32{{1}, {2}, {3}, {4}}},
		"z": scale})
	require.NoError(t, err)
	require.Equal(t, []any{
		replicaValues{[]float32{10, 20}, []float32{30, 40}},
		replicaValues{[][]int32{{1}, {2}}, [][]int32{{3}, {4}}},
	}, localValues(t, out, 2))
}

// Concurrent runs with the same structures compile each structure once.
func TestGoroutinesShareANestFunction(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	var traces atomic.Int64
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		traces.Add(1)
		return []any{args[0], graph.Neg(args[1].(pair).B.(*graph.Node))}
	}, strategy.FunctionOptions{})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 6 {
				name, x := fmt.Sprint("kind ", (g+i)%3), float32(g*10+i)
				out, err := f.Run(ctx, name, pair{B: x})
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, name, out.([]any)[0])
				got, err := out.([]any)[1].(*strategy.PerReplica).Local(ctx, 1)
				assert.NoError(t, err)
				assert.Equal(t, -x, got.Value())
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(3), traces.Load())
}

// The result of a step may be an empty nest. The step's writes are still executed.
func TestAStepMayGiveNothing(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		count, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		for name, given := range map[string]any{
			"an empty list": []any{}, "an empty map": map[string]any{}, "no result": nil, "a text": "done",
			"empties in a nest": []any{map[string]any{"a": []any{}}, []any{}, nil}, "an empty struct": struct{}{},
		} {
			for _, args := range [][]any{nil, {float32(3)}, {[]any{float32(3), map[string]any{"x": []float32{1, 2}}}},
				{[]any{}}} {
				for _, writes := range []bool{false, true} {
					f := nest.New(s, func(rc *strategy.ReplicaContext, _ []any) any {
						if writes {
							rc.AssignAdd(count, float32(1))
						}
						return given
					}, strategy.FunctionOptions{})
					require.NoError(t, count.Assign(ctx, float32(0)))
					for range 3 { // also with a compiled program
						got, err := f.Run(ctx, args...)
						require.NoError(t, err, name)
						require.Equal(t, given, got, name)
					}
					got, err := count.Local(ctx, 0)
					require.NoError(t, err)
					require.Equal(t, map[bool]float32{true: 3}[writes], got.Value())
				}
			}
		}
	})
}
