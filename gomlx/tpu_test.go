package gomlx_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// TestProgramsCompileForTPU compiles programs with the real TPU compiler, which needs no TPU: every
// supported dtype, and every op with a special lowering.
func TestProgramsCompileForTPU(t *testing.T) {
	if !plugintest.InChild(t) {
		plugintest.Path(t, "tpu")
		out, err := plugintest.Child(t, plugintest.TPUEnv()...)
		require.NoError(t, err, "%s", failures(out))
		return
	}
	plugin := plugintest.Open(t, "tpu")
	topology, err := plugin.NewTopology(t.Context(), "v5e:2x2", nil)
	require.NoError(t, err)
	defer topology.Close()
	target := lowering.New(lowering.Options{Target: lowering.TargetTPU, Precision: lowering.PrecisionHighest})

	compileForTPU := func(t *testing.T, body func(f compute.Function) []compute.Value) {
		t.Helper()
		builder := target.Builder("tpu")
		require.NoError(t, builder.Main().Return(body(builder.Main()), nil))
		exe, err := builder.Compile()
		require.NoError(t, err)
		text, err := exe.(*lowering.Executable).Program().Text()
		require.NoError(t, err)
		compiled, err := topology.Compile(t.Context(), pjrt.Program{Code: text, Trusted: true}, pjrt.CompileOptions{})
		require.NoError(t, err, "%s", text)
		require.NoError(t, compiled.Close())
	}
	for d := range target.Capabilities().DTypes {
		t.Run(d.String(), func(t *testing.T) {
			compileForTPU(t, func(f compute.Function) []compute.Value {
				do := must(t)
				x := do(f.Parameter("x", shapes.Make(d, 8, 3), nil))
				out := []compute.Value{do(f.Transpose(x, 1, 0))}
				if !d.IsPacked() && d != dtypes.Bool {
					out = append(out, do(f.Mul(x, x)), do(f.ReduceSum(x, 0)))
				}
				return out
			})
		})
	}
	for _, op := range ops {
		t.Run(op.name, func(t *testing.T) {
			compileForTPU(t, func(f compute.Function) []compute.Value {
				x := make([]compute.Value, len(op.in))
				for i, in := range op.in {
					x[i] = must(t)(f.Parameter(string(rune('a'+i)), in.shape(), nil))
				}
				return []compute.Value{op.body(t, f, x)}
			})
		})
	}
	assert.NotEmpty(t, ops)
}
