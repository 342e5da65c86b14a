package strategy_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestTraceErrorsNameTheLine(t *testing.T) {
	s := strategytest.New(t, 1, 2)
	ctx := context.Background()
	line := func() int { // line of the caller, which is one below
		_, _, line, _ := runtime.Caller(1)
		return line + 1
	}
	at := 0
	for name, step := range map[string]func(in []*graph.Node) *graph.Node{
		"an index": func(in []*graph.Node) *graph.Node {
			at = line()
			return in[1]
		},
		"a GoMLX function": func(in []*graph.Node) *graph.Node {
			at = line()
			return graph.Add(in[0], graph.Const(in[0].Graph(), []float32{1, 2}))
		},
		"an annotation": func(in []*graph.Node) *graph.Node {
			at = line()
			return logical.Split(in[0], 2, 2)
		},
		"within a region": func(in []*graph.Node) *graph.Node {
			return logical.OnDevice(1, in[0], func(x *graph.Node) *graph.Node {
				at = line()
				return graph.Reshape(x, 7)
			})
		},
		"a text": func(in []*graph.Node) *graph.Node {
			at = line()
			panic("a text")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{step(in)}
			}, strategy.FunctionOptions{})
			_, err := f.Run(ctx, []float32{1, 2, 3})
			var trace *strategy.TraceError
			require.ErrorAs(t, err, &trace)
			assert.Equal(t, fmt.Sprintf("panic_line_test.go:%d", at), trace.Where)
			assert.ErrorContains(t, err, "tracing step: at panic_line_test.go:")

			train := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), func(_ *strategy.ReplicaContext,
				in []*graph.Node) *graph.Node {
				return step(in)
			}, train.Options{}))
			_, err = train.Run(ctx, []float32{1, 2, 3})
			require.ErrorAs(t, err, &trace)
			assert.Equal(t, fmt.Sprintf("panic_line_test.go:%d", at), trace.Where)
		})
	}
}
