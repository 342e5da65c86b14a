package gomlx_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/require"
)

// TestAStepAllocatesLittle counts what a step allocates in Go that updates many variables in place.
func TestAStepAllocatesLittle(t *testing.T) {
	const variables = 20
	b := newBackend(t, shape{"8x1", 8, 1})
	builder := b.Builder("step")
	f := builder.Main()
	var next []compute.Value
	state, donate := make([]compute.Buffer, variables), make([]bool, variables)
	for i := range state {
		s := shapes.Make(dtypes.Float32, 16)
		x, err := f.Parameter(fmt.Sprintf("/v%d", i), s, nil)
		require.NoError(t, err)
		y, err := f.Add(x, x)
		require.NoError(t, err)
		next, donate[i] = append(next, y), true
		state[i], err = b.BufferFromFlatData(0, make([]float32, 16), s)
		require.NoError(t, err)
	}
	require.NoError(t, f.Return(next, nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	step := func() {
		out, err := exe.Execute(state, donate, 0)
		require.NoError(t, err)
		state = out
	}
	step()
	got := testing.AllocsPerRun(50, step)
	t.Logf("%v allocations for %d variables on 8 devices", got, variables)
	require.LessOrEqual(t, got, float64(20+6*variables))
}
