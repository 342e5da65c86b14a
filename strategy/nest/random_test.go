package nest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// mapped replaces the leaves of a nest of the kinds that these tests create.
func mapped(nest any, leaf func(x any) any) any {
	switch x := nest.(type) {
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = mapped(x[i], leaf)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out[k] = mapped(x[k], leaf)
		}
		return out
	case map[int][]any:
		out := map[int][]any{}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out[k] = mapped(x[k], leaf).([]any)
		}
		return out
	case pair:
		return pair{mapped(x.A, leaf), mapped(x.B, leaf)}
	}
	return leaf(nest)
}

// closeAll closes the results of a run.
func closeAll(t *testing.T, nest any) {
	t.Helper()
	mapped(nest, func(x any) any {
		if v, ok := x.(*strategy.PerReplica); ok {
			require.NoError(t, v.Close())
		}
		return nil
	})
}

// replicaValues is a tensor with a value for each replica.
type replicaValues []any

// localValues returns the results of a run on the host.
func localValues(t *testing.T, nest any, replicas int) any {
	t.Helper()
	return mapped(nest, func(x any) any {
		if v, ok := x.(*strategy.PerReplica); ok {
			return replicaValues(strategytest.Values(t, v, replicas))
		}
		return x
	})
}

// nestMaker creates random arguments.
type nestMaker struct {
	t        *testing.T
	rng      *rand.Rand
	s        *strategy.TPUStrategy
	replicas int
	variable *strategy.Variable
}

func (m *nestMaker) numbers() []float32 {
	return []float32{float32(m.rng.IntN(100)), float32(m.rng.IntN(100))}
}

// make returns a nest, and the same nest with each replica's expected numbers instead of the
// tensors.
func (m *nestMaker) make(depth int) (nest, want any) {
	if depth > 0 && m.rng.IntN(4) > 0 {
		return m.branch(depth)
	}
	ctx, same := context.Background(), func(x any) replicaValues { return slices.Repeat(replicaValues{x}, m.replicas) }
	switch x := m.numbers(); m.rng.IntN(10) {
	case 0:
		return x, same(x)
	case 1:
		return tensors.FromValue(x), same(x)
	case 2:
		return x[0], same(x[0])
	case 3:
		v, err := m.s.Mirror(ctx, x, logical.Annotation{})
		require.NoError(m.t, err)
		return v, same(x)
	case 4:
		var all replicaValues
		for range m.replicas {
			all = append(all, m.numbers())
		}
		v, err := m.s.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(m.t, err)
		return v, all
	case 5:
		return strategy.NewObjects(slices.Repeat([]any{"same"}, m.replicas)...), "same"
	case 6:
		return m.variable, m.variable
	case 7:
		return nil, nil
	case 8:
		return time.Duration(m.rng.IntN(3)), nil
	}
	text := fmt.Sprint("text ", m.rng.IntN(3))
	return text, text
}

func (m *nestMaker) branch(depth int) (nest, want any) {
	members := func(n int) (list, wants []any) {
		list, wants = make([]any, n), make([]any, n)
		for i := range n {
			list[i], wants[i] = m.make(depth - 1)
		}
		return list, wants
	}
	switch m.rng.IntN(4) {
	case 0:
		list, wants := members(m.rng.IntN(4))
		return list, wants
	case 1:
		list, wants := members(m.rng.IntN(4))
		nest, want := map[string]any{}, map[string]any{}
		for i, k := range []string{"x", "y", "z"}[:len(list)] {
			nest[k], want[k] = list[i], wants[i]
		}
		return nest, want
	case 2:
		a, wantA := members(1)
		b, wantB := members(2)
		return map[int][]any{2: a, 10: b}, map[int][]any{2: wantA, 10: wantB}
	}
	list, wants := members(2)
	return pair{list[0], list[1]}, pair{wants[0], wants[1]}
}

type pair struct{ A, B any }
