package nest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
)

// nestOf decodes a nest from bytes.
func nestOf(data []byte, depth int) (any, []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	op, rest := data[0], data[1:]
	n := int(op>>4) % 4
	switch {
	case depth > 6:
	case op%7 == 0:
		list := make([]any, n)
		for i := range list {
			list[i], rest = nestOf(rest, depth+1)
		}
		return list, rest
	case op%7 == 1:
		m := map[string]any{}
		for i := range n {
			m[strings.Repeat("k", i+int(op>>6))], rest = nestOf(rest, depth+1)
		}
		return m, rest
	case op%7 == 2:
		var p pair
		p.A, rest = nestOf(rest, depth+1)
		p.B, rest = nestOf(rest, depth+1)
		return p, rest
	case op%7 == 3:
		return map[int][]any{n: {int(op)}}, rest
	case op%7 == 4:
		return strings.Repeat("x", n), rest
	case op%7 == 5:
		return make([]float32, n), rest
	}
	return int(op), rest
}

// Two replicas have nests that may or may not match. Regroup returns an error with a kind, or
// SelectReplica returns the nests again.
func FuzzRegroup(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0x27 - 4, 6, 13}, []byte{0x27 - 4, 6, 20})
	f.Add([]byte{0x31, 7, 8, 9}, []byte{0x31, 7, 8, 10})
	f.Add([]byte{2, 6, 4, 5}, []byte{2, 6, 4, 5})
	f.Add([]byte{0x15}, []byte{0x25})
	s, err := strategy.New(plugintest.System(f, 2), strategy.Options{Compiler: plugintest.Programs(f)})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, _ := nestOf(a, 0)
		y, _ := nestOf(b, 0)
		grouped, err := eager.Of(s).Regroup(ctx, []any{x, y})
		if err != nil {
			require.NotEqual(t, errkind.Unknown, errkind.KindOf(err), "%v", err)
			return
		}
		for r := range 2 {
			one, err := eager.Of(s).SelectReplica(r, grouped)
			require.NoError(t, err)
			_, err = eager.Of(s).LocalResultsOf(one)
			require.NoError(t, err)
		}
		again, err := eager.Of(s).Regroup(ctx, []any{grouped, grouped})
		require.NoError(t, err)
		_ = again
	})
}

// A step receives any nest. It is traced with the same nest, or Run returns an error with a kind.
func FuzzFunction(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x27 - 4, 6, 13})
	f.Add([]byte{0x31, 7, 8, 9})
	f.Add([]byte{2, 5, 0x25})
	s, err := strategy.New(plugintest.System(f, 2), strategy.Options{Compiler: plugintest.Programs(f)})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, data []byte) {
		x, _ := nestOf(data, 0)
		tensors := 0
		count := func(x any) any {
			switch x.(type) {
			case *graph.Node, int, []float32:
				tensors++
			}
			return x
		}
		mapped(x, count)
		given := tensors
		step := nest.New(s, func(rc *strategy.ReplicaContext, args []any) any {
			tensors = 0
			mapped(args[0], count)
			return []any{args[0], graph.Scalar(rc.Graph(), dtypes.Float32, 1)}
		}, strategy.FunctionOptions{})
		m, err := step.Lowered(ctx, x)
		if err != nil {
			require.NotEqual(t, errkind.Unknown, errkind.KindOf(err), "%v", err)
			return
		}
		require.Equal(t, given, tensors)
		require.Len(t, m.Results, given+1)
	})
}
