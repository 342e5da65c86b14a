package lowering_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// f32 returns a float32 shape.
func f32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }

// lower builds a computation with one function body and returns its text.
func lower(t *testing.T, opts lowering.Options, body func(f compute.Function) []compute.Value) string {
	t.Helper()
	return string(text(t, program(t, opts, body)))
}

func program(t *testing.T, opts lowering.Options, body func(f compute.Function) []compute.Value) *lowering.Program {
	t.Helper()
	b := lowering.New(opts).Builder("test")
	require.NoError(t, b.Main().Return(body(b.Main()), nil))
	exe, err := b.Compile()
	require.NoError(t, err)
	return exe.(*lowering.Executable).Program()
}

func text(t *testing.T, p *lowering.Program) []byte {
	t.Helper()
	out, err := p.Text()
	require.NoError(t, err)
	return out
}

// must unwraps the result of one op.
func must(t *testing.T) func(compute.Value, error) compute.Value {
	t.Helper()
	return func(v compute.Value, err error) compute.Value {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func count(text, part string) int { return strings.Count(text, part) }
