package ragged_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

func mean(x *graph.Node) *graph.Node { return graph.ReduceAllMean(x) }

// A mean divides by the number of real rows: the constant becomes an expression of the size.
func TestAConstantBecomesAnExpressionOfTheRealSize(t *testing.T) {
	p, _, err := rewritten(t, mean)
	require.NoError(t, err)
	body := p.Main().Body
	assert.Equal(t, []string{"slice", "reshape"}, []string{body[0].OpName(), body[1].OpName()},
		"the real size comes first")
	assert.Equal(t, "sizes", body[0].Operands[0].Name)
	assert.Equal(t, dtypes.Int32, body[1].Results[0].Type.DType)
	assert.Positive(t, ops(p)["select"])
	defined := map[string]bool{}
	for _, a := range p.Main().Parameters {
		defined[a.Name] = true
	}
	for _, s := range body {
		for _, v := range s.Operands {
			assert.True(t, defined[v.Name], "%s reads %s before it is made", s.Op, v.Name)
		}
		for _, v := range s.Results {
			assert.False(t, defined[v.Name], "%s is made twice", v.Name)
			defined[v.Name] = true
		}
	}
}

func TestPositionsFollowTheStatements(t *testing.T) {
	base := traced(t, 4, mean)
	before := base.Program.Main().Body
	plan, err := ragged.Compare(base, []ragged.Variant{traced(t, 8, mean), traced(t, 20, mean)})
	require.NoError(t, err)
	positions, err := plan.Apply([]ragged.SizeSource{{Parameter: "sizes"}})
	require.NoError(t, err)
	after := base.Program.Main().Body
	require.Len(t, positions, len(before)+1)
	assert.Equal(t, len(after), positions[len(before)])
	for i, s := range before {
		// The statements that a statement requires precede it, from its old index on.
		found := false
		for _, now := range after[positions[i]:positions[i+1]] {
			found = found || now.Op == s.Op
		}
		assert.True(t, found, "statement %d, %s", i, s.Op)
	}
}

func TestASourceThatIsNoParameterIsAnError(t *testing.T) {
	base := traced(t, 4, mean)
	plan, err := ragged.Compare(base, []ragged.Variant{traced(t, 8, mean), traced(t, 20, mean)})
	require.NoError(t, err)
	_, err = plan.Apply([]ragged.SizeSource{{Parameter: "nowhere"}})
	assert.ErrorContains(t, err, `no parameter "nowhere"`)
}
