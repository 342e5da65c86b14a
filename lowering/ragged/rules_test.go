package ragged_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

var (
	rows = ragged.Dim{Size: 0, Factor: 1}
	full = ragged.Dim{}
)

func TestWhatCombinesRowsGetsAMaskedOperand(t *testing.T) {
	for name, c := range map[string]struct {
		step  step
		masks int
		dims  []ragged.Dim
	}{
		"elementwise":      {graph.Tanh, 0, []ragged.Dim{rows, full}},
		"a sum of columns": {func(x *graph.Node) *graph.Node { return graph.ReduceSum(x, 1) }, 0, []ragged.Dim{rows}},
		"a sum of rows":    {func(x *graph.Node) *graph.Node { return graph.ReduceSum(x, 0) }, 1, []ragged.Dim{full}},
		"a product": {func(x *graph.Node) *graph.Node { return graph.Einsum("bi,bj->ij", x, x) }, 2,
			[]ragged.Dim{full, full}},
		"rows in a row": {func(x *graph.Node) *graph.Node { return graph.Reshape(x, -1) }, 0,
			[]ragged.Dim{{Size: 0, Factor: 6}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, dims, err := rewritten(t, c.step)
			require.NoError(t, err)
			assert.Equal(t, c.dims, dims)
			assert.Equal(t, c.masks, ops(p)["select"])
			_, err = p.Text()
			assert.NoError(t, err)
		})
	}
}

func TestOpsThatCannotLeavePaddingOutAreRefused(t *testing.T) {
	for op, f := range map[string]step{
		"reverse":     func(x *graph.Node) *graph.Node { return graph.Reverse(x, 0) },
		"concatenate": func(x *graph.Node) *graph.Node { return graph.Concatenate([]*graph.Node{x, x}, 0) },
		"sort":        func(x *graph.Node) *graph.Node { return graph.Sort(x, 0, true) },
		"slice":       func(x *graph.Node) *graph.Node { return graph.Slice(x, graph.AxisRange(0, 2)) },
		"pad": func(x *graph.Node) *graph.Node {
			return graph.Pad(x, graph.ScalarZero(x.Graph(), x.DType()), graph.PadAxis{Start: 1})
		},
		"reshape": func(x *graph.Node) *graph.Node { return graph.Reshape(graph.Transpose(x, 0, 1), -1) },
	} {
		t.Run(op, func(t *testing.T) {
			_, _, err := rewritten(t, f)
			var refused *ragged.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, op, refused.Op)
			assert.NotEmpty(t, refused.Hint)
			assert.NotEmpty(t, refused.Shape)
		})
	}
}

func TestAnOpWithAnAttributeThatIsNotKnownIsRefused(t *testing.T) {
	of := func(n int) ragged.Variant {
		made := traced(t, n, func(x *graph.Node) *graph.Node {
			return graph.ReduceSum(graph.ConvertDType(x, dtypes.Float64),
				0)
		})
		for _, s := range made.Program.Main().Body {
			s.ReplaceAttribute("dimensions", unknownAttributeError{})
		}
		return made
	}
	plan, err := ragged.Compare(of(4), []ragged.Variant{of(8), of(20)})
	require.NoError(t, err)
	_, err = plan.Apply([]ragged.SizeSource{{Parameter: "sizes"}})
	assert.ErrorContains(t, err, "reduce: its attribute dimensions is unknown")
}

// unknownAttributeError is an attribute that no rule supports.
type unknownAttributeError struct{}

func (unknownAttributeError) Append(text []byte) []byte { return append(text, "unknown"...) }
