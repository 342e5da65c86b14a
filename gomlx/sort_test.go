package gomlx_test

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSortsEndWhateverTheComparatorSays gives comparators that are no strict order, over enough
// equal elements for a sort that trusts them to leave the tensor.
func TestSortsEndWhateverTheComparatorSays(t *testing.T) {
	b := newBackend(t, alone)
	const n = 4000
	equal, mixed := make([]int32, n), make([]int32, n)
	random := rand.New(rand.NewSource(7))
	for i := range mixed {
		equal[i], mixed[i] = 7, random.Int31n(5)
	}
	sorted := slices.Sorted(slices.Values(mixed))
	type compare = func(c compute.Function, l, r compute.Value) (compute.Value, error)
	for _, test := range []struct {
		name     string
		in, want []int32 // want is nil where any order will do
		compare  compare
	}{
		{"less or equal, all equal", equal, equal, compute.Function.LessOrEqual},
		{"less or equal", mixed, sorted, compute.Function.LessOrEqual},
		{"less", mixed, sorted, compute.Function.LessThan},
		{"always", mixed, nil, func(c compute.Function, l, _ compute.Value) (compute.Value, error) { return c.Equal(l, l) }},
		{"differs", mixed, nil, compute.Function.NotEqual},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := runOf(t, b, []tensor{{flat: test.in, dims: []int{n}}}, func(f compute.Function,
				x []compute.Value) []compute.Value {
				comparator := closure(t, f, func(c compute.Function) []compute.Value {
					do := must(t)
					l := do(c.Parameter("l", shapes.Make(dtypes.Int32), nil))
					r := do(c.Parameter("r", shapes.Make(dtypes.Int32), nil))
					return []compute.Value{do(test.compare(c, l, r))}
				})
				out, err := f.Sort(comparator, 0, false, x...)
				require.NoError(t, err)
				return out
			})
			if test.want != nil {
				assert.Equal(t, test.want, got[0])
				return
			}
			assert.Equal(t, sorted, slices.Sorted(slices.Values(got[0].([]int32))), "the same elements")
		})
	}
}
