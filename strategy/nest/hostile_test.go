package nest_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
)

// hostileNest is a run of a nest function that must fail.
type hostileNest struct {
	kind errkind.Kind
	// path is the location that an argument's error has, otherwise empty; says is a substring of
	// the error's text.
	path, says string
	args       []any
	step       nest.StepFunc // nil returns the arguments
	is         error
}

type mixed struct {
	Name string
	X    any
}

func TestHostileNestsAreTypedErrors(t *testing.T) {
	leaktest.Check(t)
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	s, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: 2, LogicalDevices: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	// which lacks devices of s
	other, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: 1, LogicalDevices: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	mine, err := s.Mirror(ctx, float32(1), logical.Annotation{})
	require.NoError(t, err)
	closed, err := s.Mirror(ctx, float32(1), logical.Annotation{})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	theirs, err := other.Mirror(ctx, float32(1), logical.Annotation{})
	require.NoError(t, err)
	foreign, err := other.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	ragged, err := s.PerReplica(ctx, []any{[]float32{1}, []float32{1, 2}}, logical.Annotation{})
	require.NoError(t, err)
	var stray *graph.Node
	_, err = s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		stray = in[0]
		return in
	}, strategy.FunctionOptions{}).Run(ctx, float32(1))
	require.NoError(t, err)

	returns := func(make func(x *graph.Node) any) nest.StepFunc {
		return func(_ *strategy.ReplicaContext, args []any) any { return make(args[0].(*graph.Node)) }
	}
	one := []any{float32(1)}
	for name, c := range map[string]hostileNest{
		"arguments that hold themselves": {kind: errkind.ValueError,
			says: "args: the nest has more than 100 levels or contains itself", args: []any{loop()}},
		"a closed value": {kind: errkind.RuntimeError, path: "args[1].B[0]",
			args: []any{1, pair{B: []any{closed}}}, is: strategy.ErrClosed},
		"another strategy's value": {kind: errkind.RuntimeError, path: "args[0][k]", says: "another strategy",
			args: []any{map[string]any{"k": theirs}}},
		"another strategy's variable": {kind: errkind.RuntimeError, path: "args[0][1]", says: "another strategy",
			args: []any{[]any{1, foreign}}},
		"no variable": {kind: errkind.ValueError, path: "args[0]",
			args: []any{(*strategy.Variable)(nil)}},
		"no value": {kind: errkind.ValueError, path: "args[0].A",
			args: []any{pair{A: (*strategy.PerReplica)(nil)}}},
		"no tensor": {kind: errkind.ValueError, path: "args[0].A",
			args: []any{pair{A: (*tensors.Tensor)(nil)}}},
		"rows of several lengths": {kind: errkind.ValueError, path: "args[2][1]",
			args: []any{1, "a", []any{2, [][]float32{{1}, {2, 3}}}}},
		"replicas of several shapes": {kind: errkind.ValueError, path: "args[0][0]",
			says: "FunctionOptions.Padding", args: []any{[]any{ragged}}},
		"a node": {kind: errkind.ValueError, path: "args[0]", says: "node", args: []any{stray}},
		"objects that differ": {kind: errkind.ValueError, path: "args[0].A",
			says: "one trace stands for all replicas", args: []any{pair{A: strategy.NewObjects("a", "b")}}},
		"too few objects": {kind: errkind.ValueError, path: "args[0]", says: "give 2",
			args: []any{strategy.NewObjects("a")}},
		"objects that cannot be compared": {kind: errkind.ValueError, path: "args[0]",
			args: []any{strategy.NewObjects([]any(nil), []any(nil))}},
		"a list of values": {kind: errkind.ValueError, path: "args[0]", says: "of type any",
			args: []any{[]*strategy.Mirrored{mine}}},
		"a map of host tensors": {kind: errkind.ValueError, path: "args[0].B", says: "of type any",
			args: []any{pair{B: map[string][]float32{"a": {1}}}}},
		"a struct of values": {kind: errkind.ValueError, path: "args[0]", says: "of type any",
			args: []any{struct{ X *strategy.Mirrored }{mine}}},
		"a struct of a value and a string": {kind: errkind.ValueError, path: "args[0]", says: "of type any",
			args: []any{mixed{"a", mine}}},
		"an array of values": {kind: errkind.ValueError, path: "args[0]", says: "of type any",
			args: []any{[1]any{mine}}},
		"a list of words": {kind: errkind.ValueError, path: "args[0]", says: "of type any",
			args: []any{[]string{"a"}}},
		"a pointer to a nest": {kind: errkind.ValueError, path: "args[0]", says: "give the nest itself",
			args: []any{&pair{A: mine}}},
		"a member that cannot hold a node": {kind: errkind.TypeError,
			says: "args[0][0] of type strategy.Value cannot hold a *graph.Node; use a member of type any",
			args: []any{[]strategy.Value{mine}}},
		"a static that is not itself": {kind: errkind.ValueError, says: "NaN",
			args: []any{1, struct{ x float64 }{math.NaN()}}},
		"a key that is not itself": {kind: errkind.ValueError, says: "args[1] has NaN as a key",
			args: []any{1, map[float64]any{math.NaN(): "a"}}},
		"no step": {kind: errkind.ValueError, says: "no step function", args: one, step: nil},
		"a step that panics": {says: "at hostile_test.go:", args: one, is: io.ErrNoProgress,
			step: func(*strategy.ReplicaContext, []any) any { panic(io.ErrNoProgress) }},
		"a step that returns a nil node": {kind: errkind.TypeError, says: "result[a] is a nil node", args: one,
			step: returns(func(*graph.Node) any { return map[string]any{"a": (*graph.Node)(nil)} })},
		"a step that returns a stray node": {kind: errkind.TypeError, says: "result[1] is a node of another graph",
			args: one, step: returns(func(x *graph.Node) any { return []any{x, stray} })},
		"a step that returns a list of nodes": {kind: errkind.TypeError, says: "result.B is a []*graph.Node", args: one,
			step: returns(func(x *graph.Node) any { return pair{B: []*graph.Node{x}} })},
		"a step that returns no node of a map": {kind: errkind.TypeError, says: "result is a map[string]*graph.Node",
			args: one, step: returns(func(*graph.Node) any { return map[string]*graph.Node{} })},
		"a step that returns a mixed struct": {kind: errkind.TypeError, says: "result is a nest_test.mixed", args: one,
			step: returns(func(x *graph.Node) any { return mixed{"a", x} })},
		"a step that returns a list of those": {kind: errkind.TypeError, says: "result is a []nest_test.mixed", args: one,
			step: returns(func(x *graph.Node) any { return []mixed{{"a", x}} })},
		"a step that returns its context": {kind: errkind.TypeError, says: "result[0] is a *strategy.ReplicaContext",
			args: one, step: func(rc *strategy.ReplicaContext, _ []any) any { return []any{rc} }},
		"a step that returns a pointer": {kind: errkind.TypeError, says: "result is a *nest_test.pair", args: one,
			step: returns(func(x *graph.Node) any { return &pair{A: x} })},
		"a step that returns a value": {kind: errkind.TypeError, says: "result is a *strategy.Mirrored", args: one,
			step: returns(func(*graph.Node) any { return mine })},
		"a step that returns no value": {kind: errkind.TypeError, says: "result[1] is a *strategy.PerReplica",
			args: one, step: returns(func(x *graph.Node) any { return []any{x, (*strategy.PerReplica)(nil)} })},
		"a result that holds itself": {kind: errkind.ValueError, says: "result: the nest has more than 100 levels",
			args: one, step: returns(func(*graph.Node) any { return loop() })},
		"a result that holds no values": {kind: errkind.TypeError, says: "cannot hold a *strategy.PerReplica",
			args: one, step: returns(func(x *graph.Node) any { return []interface{ IsScalar() bool }{x} })},
	} {
		t.Run(name, func(t *testing.T) {
			step := c.step
			if step == nil && name != "no step" {
				step = func(_ *strategy.ReplicaContext, args []any) any { return args }
			}
			f := nest.New(s, step, strategy.FunctionOptions{Name: "hostile"})
			for range 2 { // a failed trace leaves nothing that a second run could find
				out, err := f.Run(ctx, c.args...)
				require.Error(t, err)
				require.Nil(t, out)
				require.Equal(t, c.kind, errkind.KindOf(err), "%T: %v", err, err)
				require.ErrorContains(t, err, c.says)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				var wrong *strategy.ArgumentError
				if errors.As(err, &wrong) {
					require.Equal(t, c.path, wrong.Path, "%v", err)
					require.Equal(t, int(c.path[len("args[")]-'0'), wrong.Argument)
					require.ErrorContains(t, err, "hostile: "+c.path+": ")
				} else {
					require.Empty(t, c.path, "%v", err)
				}
				_, lowered := f.Lowered(ctx, c.args...)
				require.EqualError(t, lowered, err.Error())
				_, compiled := f.Compiled(ctx, c.args...)
				require.Error(t, compiled)
			}
			// The strategy remains usable.
			out, err := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any { return args[0] },
				strategy.FunctionOptions{}).Run(ctx, []any{mine})
			require.NoError(t, err)
			require.Equal(t, []any{float32(1), float32(1)}, strategytest.Values(t, out.([]any)[0].(*strategy.PerReplica), 2))
			closeAll(t, out)
		})
	}
}

func TestACancelledNestRunLeavesNothing(t *testing.T) {
	leaktest.Check(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := strategytest.New(t, 2, 1)
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any { return args }, strategy.FunctionOptions{})
	cancel()
	_, err := f.Run(ctx, "a", pair{B: float32(1)})
	require.ErrorIs(t, err, context.Canceled)
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "args[1].B", wrong.Path)
	ctx = context.Background()
	out, err := f.Run(ctx, "a", pair{B: float32(1)})
	require.NoError(t, err)
	require.Equal(t, []any{"a", pair{B: replicaValues{float32(1), float32(1)}}}, localValues(t, out, 2))
	closeAll(t, out)
	require.NoError(t, s.Close())
	_, err = f.Run(ctx, "a", pair{B: float32(1)})
	require.ErrorIs(t, err, strategy.ErrClosed)
}

func TestAClosedVariableInANestIsNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)
	f := nest.New(s, func(rc *strategy.ReplicaContext, args []any) any {
		return rc.Read(args[0].(pair).A.(*strategy.Variable))
	}, strategy.FunctionOptions{})
	out, err := f.Run(ctx, pair{A: v})
	require.NoError(t, err)
	closeAll(t, out)
	require.NoError(t, v.Close())
	_, err = f.Run(ctx, pair{A: v})
	require.ErrorIs(t, err, strategy.ErrClosed)
	require.ErrorContains(t, err, `variable "w"`)
	w, err := s.NewVariable(ctx, float32(2), strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)
	out, err = f.Run(ctx, pair{A: w})
	require.NoError(t, err)
	require.Equal(t, []any{float32(2), float32(2)}, strategytest.Values(t, out.(*strategy.PerReplica), 2))
}

// loop returns a nest that contains itself.
func loop() []any {
	l := []any{nil}
	l[0] = l
	return l
}
