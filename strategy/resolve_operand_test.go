package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
	"github.com/tpustrategy/tpustrategy/strategy/nest"
)

// takenWorld has one value of each kind, for a strategy with two replicas.
type takenWorld struct {
	ctx   context.Context
	s     *strategy.TPUStrategy
	e     *eager.Extended
	kinds map[string]any
}

// takenKinds are the rows of the table, in order.
var takenKinds = []string{"number", "host tensor", "nest", "text", "nothing", "component", "component of a variable",
	"variable", "sync-on-read variable",
	"Mirrored", "PerReplica", "equal PerReplica", "BatchStack", "Objects", "graph node", "another strategy's variable",
	"another strategy's Mirrored",
	"another strategy's PerReplica", "variable elsewhere"}

func newTakenWorld(t *testing.T) *takenWorld {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	open := func(assign strategy.Options) *strategy.TPUStrategy { return strategytest.On(t, sys, assign) }
	all, s := open(strategy.Options{Replicas: 4}), open(strategy.Options{Replicas: 2})
	pair := []float32{1, 2}
	w := &takenWorld{ctx: ctx, s: s, e: eager.Of(s)}
	v := strategytest.OK(s.NewVariable(ctx, pair, strategy.VariableOptions{Aggregation: strategy.AggregateMean}))
	metric := strategytest.OK(s.NewVariable(ctx, pair, strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateMean}))
	mirrored := strategytest.OK(s.Mirror(ctx, pair, logical.Annotation{}))
	apart := strategytest.OK(s.PerReplica(ctx, []any{pair, []float32{3, 4}}, logical.Annotation{}))
	equal := strategytest.OK(w.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
		error) {
		return rc.AllReduce(strategy.Mean, pair)
	}))
	var node *graph.Node
	strategytest.OK(s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		node = graph.Const(rc.Graph(), pair)
		return nil
	}, strategy.FunctionOptions{}).Run(ctx))
	elsewhere := open(strategy.Options{Replicas: 1})
	w.kinds = map[string]any{
		"number": float32(2), "host tensor": tensors.FromValue(pair), "nest": []any{pair, map[string]any{"a": pair}},
		"text": "a", "nothing": nil,
		"component":               strategytest.OK(eager.Of(s).Component(apart, 1)),
		"component of a variable": strategytest.OK(w.e.Component(v, 1)), "variable": v, "sync-on-read variable": metric,
		"Mirrored": mirrored, "PerReplica": apart, "equal PerReplica": equal,
		"BatchStack": strategytest.OK(s.StackBatches(ctx, []any{pair, pair}, logical.Annotation{})),
		"Objects":    strategy.NewObjects("a", "b"), "graph node": node,
		"another strategy's variable": strategytest.OK(all.NewVariable(ctx, pair, strategy.VariableOptions{})),
		"another strategy's Mirrored": strategytest.OK(all.Mirror(ctx, pair, logical.Annotation{})),
		"another strategy's PerReplica": strategytest.OK(all.PerReplica(ctx, []any{pair, pair, pair, []float32{0, 0}},
			logical.Annotation{})),
		"variable elsewhere": strategytest.OK(elsewhere.NewVariable(ctx, pair, strategy.VariableOptions{})),
	}
	return w
}

// variable returns a variable with the shape of the written value.
func (w *takenWorld) variable(x any) *strategy.Variable {
	initial := any([]float32{0, 0})
	if _, ok := x.(float32); ok {
		initial = float32(0)
	}
	return strategytest.OK(w.s.NewVariable(w.ctx, initial, strategy.VariableOptions{Aggregation: strategy.AggregateMean}))
}

// takenPlaces are the columns of the table, in order.
var takenPlaces = []struct {
	name string
	give func(w *takenWorld, x any) error
}{
	{"Run", func(w *takenWorld, x any) error {
		f := w.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
			strategy.FunctionOptions{})
		return strategytest.Err(f.Run(w.ctx, x))
	}},
	{"nest.Function", func(w *takenWorld, x any) error {
		f := nest.New(w.s, func(_ *strategy.ReplicaContext, args []any) any { return nil }, strategy.FunctionOptions{})
		return strategytest.Err(f.Run(w.ctx, x))
	}},
	{"CallForEachReplica", func(w *takenWorld, x any) error {
		return strategytest.Err(w.e.CallForEachReplica(w.ctx, func(*eager.ReplicaContext, ...any) (any, error) {
			return nil,
				nil
		}, x))
	}},
	{"NewVariable", func(w *takenWorld, x any) error {
		return strategytest.Err(w.s.NewVariable(w.ctx, x, strategy.VariableOptions{}))
	}},
	{"Variable.Assign", func(w *takenWorld, x any) error { return w.variable(x).Assign(w.ctx, x) }},
	{"ReplicaContext.Assign", func(w *takenWorld, x any) error {
		v := w.variable(x)
		return strategytest.Err(w.s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			rc.Assign(v, x)
			return nil
		}, strategy.FunctionOptions{}).Run(w.ctx))
	}},
	{"merge call", func(w *takenWorld, x any) error {
		v := w.variable(x)
		return strategytest.Err(w.s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return eager.MergeCall(rc, func(mc *eager.MergeContext, _ ...*eager.MergeValue) []*eager.MergeValue {
				if err := v.Assign(mc.Context(), x); err != nil {
					panic(err)
				}
				return nil
			})
		}, strategy.FunctionOptions{}).Run(w.ctx))
	}},
	{"eager.ReplicaContext.Assign", func(w *takenWorld, x any) error {
		v := w.variable(x)
		return strategytest.Err(w.e.CallForEachReplica(w.ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
			error) {
			return rc.Assign(v, x)
		}))
	}},
	{"UpdateContext.Assign", func(w *takenWorld, x any) error {
		return strategytest.Err(w.e.Update(w.ctx, w.variable(x), func(u *eager.UpdateContext, _ ...any) (any,
			error) {
			return u.Assign(x)
		}))
	}},
	{"AllReduce", func(w *takenWorld, x any) error {
		return strategytest.Err(w.e.CallForEachReplica(w.ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
			error) {
			return rc.AllReduce(strategy.Mean, x)
		}))
	}},
	{"arithmetic", func(w *takenWorld, x any) error {
		return strategytest.Err(w.e.CallForEachReplica(w.ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
			error) {
			return rc.Add(x, 1)
		}))
	}},
	{"eager.Extended.Reduce", func(w *takenWorld, x any) error {
		return strategytest.Err(eager.Of(w.s).Reduce(w.ctx, strategy.Mean, x))
	}},
	{"eager.Extended.Reduce, axis 0", func(w *takenWorld, x any) error {
		if _, ok := x.(float32); ok {
			x = []float32{2}
		}
		return strategytest.Err(eager.Of(w.s).Reduce(w.ctx, strategy.Mean, x, 0))
	}},
	{"Mirror", func(w *takenWorld, x any) error { return strategytest.Err(w.s.Mirror(w.ctx, x, logical.Annotation{})) }},
	{"PerReplica", func(w *takenWorld, x any) error {
		return strategytest.Err(w.s.PerReplica(w.ctx, []any{x, x}, logical.Annotation{}))
	}},
	{"Scatter", func(w *takenWorld, x any) error {
		v := w.variable([]float32{0, 0})
		if _, ok := x.(float32); ok {
			return v.Scatter(w.ctx, strategy.ScatterAdd, []int32{0}, []float32{2})
		}
		return strategytest.OK(w.s.NewVariable(w.ctx, []float32{0, 0}, strategy.VariableOptions{})).Scatter(w.ctx,
			strategy.ScatterAdd, []int32{0, 1}, x)
	}},
}

// takenTable reads the table of docs/tensorflow-values.md: by kind, then by place, "yes" or the reason for
// which the call rejects the value.
func takenTable(t *testing.T) (header []string, rows map[string][]string) {
	data, err := os.ReadFile("../docs/tensorflow-values.md")
	require.NoError(t, err)
	rows = map[string][]string{}
	_, table, ok := strings.Cut(string(data), "\n| value |")
	require.True(t, ok, "the page has the table")
	for i, line := range strings.Split("| value |"+table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for k := range cells {
			cells[k] = strings.Trim(strings.TrimSpace(cells[k]), "`")
		}
		switch i {
		case 0:
			header = cells[1:]
		case 1:
		default:
			rows[cells[0]] = cells[1:]
		}
	}
	return header, rows
}

// Each cell of the page's table matches the behavior.
func TestWhatIsTakenWhereIsTheTableOfThePage(t *testing.T) {
	w := newTakenWorld(t)
	var lines []string
	names := make([]string, len(takenPlaces))
	for i, p := range takenPlaces {
		names[i] = p.name
	}
	lines = append(lines, "| value | `"+strings.Join(names, "` | `")+"` |", "|---|"+strings.Repeat("---|", len(names)))
	got := map[string][]string{}
	for _, kind := range takenKinds {
		var cells []string
		for _, p := range takenPlaces {
			cell := "yes"
			if err := p.give(w, w.kinds[kind]); err != nil {
				require.NotEqual(t, errkind.Unknown, errkind.KindOf(err), "%s to %s: %v", kind, p.name, err)
				require.False(t, strings.Contains(err.Error(), "panic") || errors.As(err, new(*errkind.PanicError)), "%s to %s: %v",
					kind, p.name, err)
				cell = strings.TrimSuffix(errkind.KindOf(err).String(), "Error")
				if testing.Verbose() {
					fmt.Printf("%s to %s: %v\n", kind, p.name, err)
				}
			}
			cells = append(cells, cell)
		}
		got[kind] = cells
		lines = append(lines, "| "+kind+" | "+strings.Join(cells, " | ")+" |")
	}
	if out := os.Getenv("TAKEN_TABLE"); out != "" { // writes the table of the page
		require.NoError(t, os.WriteFile(out, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	header, rows := takenTable(t)
	require.Equal(t, names, header)
	require.Len(t, rows, len(takenKinds))
	for kind, cells := range got {
		require.Equal(t, rows[kind], cells, kind)
	}
}

// Accepted values have the intended contents.
func TestWhatIsTakenKeepsItsValue(t *testing.T) {
	ctx := context.Background()
	w := newTakenWorld(t)
	pair, want := []float32{1, 2}, map[string][]float32{"component": {3, 4}}
	for _, kind := range []string{"host tensor", "component", "component of a variable", "variable", "Mirrored",
		"equal PerReplica",
		"another strategy's variable", "another strategy's Mirrored", "sync-on-read variable"} {
		x, value := w.kinds[kind], pair
		if want[kind] != nil {
			value = want[kind]
		}
		both := []any{value, value}
		f := w.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
			strategy.FunctionOptions{})
		for range 2 { // the second time with a cached program
			out, err := f.Run(ctx, x)
			require.NoError(t, err, kind)
			require.Equal(t, both, strategytest.Values(t, out[0], 2), kind)
		}
		b, err := f.Bind(ctx, x)
		require.NoError(t, err, kind)
		require.NoError(t, b.Launch(ctx))
		require.Equal(t, both, strategytest.Values(t, b.Results()[0], 2), kind)
		require.NoError(t, b.Close())
		v, err := w.s.NewVariable(ctx, x, strategy.VariableOptions{})
		require.NoError(t, err, kind)
		require.Equal(t, both, strategytest.Values(t, v, 2), kind)
		m, err := w.s.Mirror(ctx, x, logical.Annotation{})
		require.NoError(t, err, kind)
		require.Equal(t, both, strategytest.Values(t, m, 2), kind)
		each, err := w.s.PerReplica(ctx, []any{x, pair}, logical.Annotation{})
		require.NoError(t, err, kind)
		require.Equal(t, []any{value, pair}, strategytest.Values(t, each, 2), kind)
		if kind != "sync-on-read variable" {
			u := w.variable(pair)
			require.NoError(t, u.Assign(ctx, x), kind)
			require.Equal(t, both, strategytest.Values(t, u, 2), kind)
		}
		u := w.variable(pair)
		_, err = w.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Assign(u, x) })
		require.NoError(t, err, kind)
		require.Equal(t, both, strategytest.Values(t, u, 2), kind)
	}
}
