package lowering_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/screen"
	"github.com/tpustrategy/tpustrategy/lowering"
)

// factsOf lowers a function of one argument of 4 float32, and answers what is known of it and of
// its text.
func factsOf(t *testing.T, body func(f compute.Function, x compute.Value) (compute.Value, error)) (*screen.Facts, []byte) {
	b := lowering.New(lowering.Options{Target: lowering.TargetCPU}).Builder("facts")
	f := b.Main()
	x, err := f.Parameter("x", shapes.Make(dtypes.Float32, 4), nil)
	require.NoError(t, err)
	y, err := body(f, x)
	require.NoError(t, err)
	require.NoError(t, f.Return([]compute.Value{y}, nil))
	exe, err := b.Compile()
	require.NoError(t, err)
	p := exe.(*lowering.Lowered).Program()
	text, err := p.Text()
	require.NoError(t, err)
	return p.Facts(text), text
}

// What compilers do not survive is refused from the operations as from the text.
func TestFactsRefuseWhatTheTextIsRefusedFor(t *testing.T) {
	host := screen.Options{Host: true}
	for name, c := range map[string]struct {
		says string
		body func(f compute.Function, x compute.Value) (compute.Value, error)
	}{
		"a negation": {"", func(f compute.Function, x compute.Value) (compute.Value, error) { return f.Neg(x) }},
		"a padding": {"pads dimension 0", func(f compute.Function, x compute.Value) (compute.Value, error) {
			zero, err := f.Constant([]float32{0})
			if err != nil {
				return nil, err
			}
			return f.Pad(x, zero, compute.PadAxis{Start: math.MaxInt64 / 2, End: -math.MaxInt64 / 2})
		}},
		"a division by what folding makes 0": {"", func(f compute.Function, x compute.Value) (compute.Value, error) {
			i, err := f.ConvertDType(x, dtypes.Int32)
			if err != nil {
				return nil, err
			}
			zero, err := f.Sub(i, i)
			if err != nil {
				return nil, err
			}
			seven, err := f.Constant([]int32{7, 7, 7, 7}, 4)
			if err != nil {
				return nil, err
			}
			q, err := f.Div(seven, zero)
			if err != nil {
				return nil, err
			}
			return f.ConvertDType(q, dtypes.Float32)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			facts, text := factsOf(t, c.body)
			require.NotNil(t, facts)
			known, err := facts.Check(text, host)
			assert.True(t, known)
			code, read := screen.MLIR(text, host)
			if c.says == "" {
				assert.NoError(t, err)
				assert.NoError(t, read)
				assert.Equal(t, string(text), string(code), "there is nothing left to hide")
				return
			}
			assert.ErrorContains(t, err, c.says)
			assert.ErrorContains(t, read, c.says)
		})
	}
}

// A sort is looked at by what it compares with and by whether it is stable.
func TestFactsOfASort(t *testing.T) {
	for name, c := range map[string]struct {
		less func(f compute.Function, a, b compute.Value) (compute.Value, error)
		says string
	}{
		"less":          {func(f compute.Function, a, b compute.Value) (compute.Value, error) { return f.LessThan(a, b) }, ""},
		"less or equal": {func(f compute.Function, a, b compute.Value) (compute.Value, error) { return f.LessOrEqual(a, b) }, "compares by LE"},
		"always": {func(f compute.Function, _, _ compute.Value) (compute.Value, error) { return f.Constant([]bool{true}) },
			"compares by true"},
	} {
		for _, stable := range []bool{false, true} {
			b := lowering.New(lowering.Options{Target: lowering.TargetTPU}).Builder("facts")
			f, do := b.Main(), must(t)
			x := do(f.Parameter("x", shapes.Make(dtypes.Float32, 4), nil))
			by, err := f.Closure()
			require.NoError(t, err)
			lhs, rhs := do(by.Parameter("lhs", shapes.Make(dtypes.Float32), nil)), do(by.Parameter("rhs", shapes.Make(dtypes.Float32), nil))
			require.NoError(t, by.Return([]compute.Value{do(c.less(by, lhs, rhs))}, nil))
			sorted, err := f.Sort(by, 0, stable, x)
			require.NoError(t, err)
			require.NoError(t, f.Return(sorted, nil))
			exe, err := b.Compile()
			require.NoError(t, err)
			p := exe.(*lowering.Lowered).Program()
			known, err := p.Facts(text(t, p)).Check(text(t, p), screen.Options{Host: true})
			assert.True(t, known, name)
			_, read := screen.MLIR(text(t, p), screen.Options{Host: true})
			if c.says == "" || stable {
				assert.NoError(t, err, name)
				assert.NoError(t, read, name)
			} else {
				assert.ErrorContains(t, err, c.says, name)
				assert.ErrorContains(t, read, c.says, name)
			}
		}
	}
}
