package ragged_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// step computes a value from a batch x of [rows, 6]. The parameter "sizes" contains the real rows.
type step func(x *graph.Node) *graph.Node

// traced returns a step's program for a number of rows.
func traced(t *testing.T, rows int, f step) ragged.Variant {
	t.Helper()
	g := graph.NewGraph(lowering.New(lowering.Options{}), "step")
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, rows, 6))
	graph.Parameter(g, "sizes", shapes.Make(dtypes.Int32, 1))
	require.NoError(t, g.Compile(f(x)))
	return ragged.Variant{Program: g.Executable().(*lowering.Executable).Program(), Sizes: []int{rows}}
}

// rewritten returns the program of a step for 4 rows, of which sizes[0] are real, and the
// dimensions of its result.
func rewritten(t *testing.T, f step) (*lowering.Program, []ragged.Dim, error) {
	t.Helper()
	base := traced(t, 4, f)
	plan, err := ragged.Compare(base, []ragged.Variant{traced(t, 8, f), traced(t, 20, f)})
	if err != nil {
		return nil, nil, err
	}
	results := plan.ResultDims()
	_, err = plan.Apply([]ragged.SizeSource{{Parameter: "sizes"}})
	return base.Program, results[0], err
}

// ops counts the ops of a program by name.
func ops(p *lowering.Program) map[string]int {
	count := map[string]int{}
	for _, s := range p.Main().Body {
		count[s.OpName()]++
	}
	return count
}
