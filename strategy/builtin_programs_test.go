package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Internal programs are compiled once for each signature of values and variables, and are shared by
// different values and variables.
func TestAnOwnProgramIsMadeOnceForEachKind(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	variable := func(shape []float32, opts strategy.VariableOptions) *strategy.Variable {
		return strategytest.OK(s.NewVariable(ctx, shape, opts))
	}
	count := func(f func()) (programs int) {
		before := strategy.OwnPrograms(s)
		f()
		for name, n := range strategy.OwnPrograms(s) {
			programs += n - before[name]
		}
		return programs
	}
	add := func(v *strategy.Variable, x any) func() {
		return func() { require.NoError(t, v.AssignAdd(ctx, x)) }
	}
	two := []float32{1, 2}
	a, b := variable(two, strategy.VariableOptions{Name: "a"}), variable(two, strategy.VariableOptions{Name: "b"})
	assert.Equal(t, 1, count(add(a, two)))
	assert.Equal(t, 0, count(add(a, []float32{5, 6})), "the same again")
	assert.Equal(t, 0, count(add(b, two)), "another variable of the kind")
	assert.Equal(t, 1, count(add(variable(two, strategy.VariableOptions{Name: "c", Annotation: logical.SplitInto(2)}),
		two)), "of another split")
	assert.Equal(t, 1, count(add(variable([]float32{1, 2, 3}, strategy.VariableOptions{Name: "d"}), []float32{1, 2, 3})),
		"of another shape")
	assert.Equal(t, 1, count(add(variable(two, strategy.VariableOptions{Name: "e", LocalWrites: true}), two)),
		"with components that differ")
	for path, v := range map[string]*strategy.Variable{"a": a, "b": b} {
		got, err := v.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, map[string][]float32{"a": {7, 10}, "b": {2, 4}}[path], got.Value(), path)
	}

	x := strategytest.OK(s.PerReplica(ctx, []any{two, two}, logical.Annotation{}))
	sum := func(op strategy.ReduceOp) func() {
		return func() { require.NoError(t, strategytest.OK(s.Reduce(ctx, op, x)).Close()) }
	}
	assert.Equal(t, 1, count(sum(strategy.Sum)))
	assert.Equal(t, 0, count(sum(strategy.Sum)), "the same again")
	assert.Equal(t, 1, count(sum(strategy.Mean)), "another reduction")

	// An internal program in a step that is being traced is an error: it would run once, and not in
	// each run.
	var inStep error
	_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		_, inStep = engine.Internal(s).RunBuiltin(rc.Context(), "double", nil, nil, nil, true)
		return in
	}, strategy.FunctionOptions{}).Run(ctx, float32(1))
	require.NoError(t, err)
	require.ErrorIs(t, inStep, strategy.ErrContext)
	assert.ErrorContains(t, inStep, "strategy: double: ")
}
