package lowering_test

import (
	"bytes"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// taken returns a function that contains all ops with structured attributes.
func taken(t *testing.T) (*lowering.Function, *ir.Function) {
	t.Helper()
	do, f := must(t), lowering.New(lowering.Options{}).Builder("b").Main().(*lowering.Function)
	x := do(f.Parameter("x", f32(4, 6), nil))
	image := do(f.Parameter("image", f32(2, 8, 3), nil))
	kernel := do(f.Parameter("kernel", f32(3, 3, 5), nil))
	at := do(f.Constant([]int32{2, 0}, 2, 1))
	zero := do(f.Constant([]float32{0}))
	do(f.DotGeneral(x, []int{1}, nil, x, []int{1}, nil, compute.DotGeneralConfig{}))
	do(f.ConvGeneral(image, kernel, compute.ConvolveAxesConfig{
		InputBatch: 0, InputChannels: 2, InputSpatial: []int{1}, KernelInputChannels: 1, KernelOutputChannels: 2,
		KernelSpatial: []int{0},
		OutputBatch:   0, OutputChannels: 2, OutputSpatial: []int{1},
	}, []int{2}, [][2]int{{1, 1}}, nil, nil, 1, 1))
	do(f.Gather(x, at, 1, []int{1}, []int{0}, []int{0}, []int{1, 6}, false))
	do(f.ScatterSum(x, at, do(f.Slice(x, []int{0, 0}, []int{2, 6}, []int{1, 1})), 1, []int{1}, []int{0}, []int{0}, false,
		false))
	do(f.ReduceWindow(x, compute.ReduceOpSum, []int{2, 2}, []int{1, 1}, nil, nil, [][2]int{{0, 1}, {1, 0}}))
	do(f.SelectAndScatterMax(x, do(f.Slice(x, []int{0, 0}, []int{2, 3}, []int{1, 1})), []int{2, 2}, []int{2, 2}, nil))
	do(f.Pad(x, zero, compute.PadAxis{Start: 1}, compute.PadAxis{End: 2, Interior: 1}))
	do(f.Reverse(x, 0))
	do(f.Concatenate(1, x, x))
	do(f.ReduceSum(x, 0))
	do(f.Transpose(x, 1, 0))
	do(f.FFT(do(f.ConvertDType(x, dtypes.Complex64)), compute.FFTForward, []int{6}))
	return f, f.IR()
}

// Passes read attributes as values, not as text.
func TestAttributesWithNumbersAreTakenOverAsValues(t *testing.T) {
	raw := map[string]bool{}
	_, f := taken(t)
	for _, s := range f.Body {
		for _, a := range s.Attributes {
			if _, ok := a.Value.(ir.Raw); ok {
				raw[a.Key] = true
			}
		}
	}
	assert.Equal(t, map[string]bool{"precision_config": true, "window_reversal": true}, raw)
}

// Each statement has the same text as in the StableHLO builder, except for constants, which this
// module writes itself.
func TestStatementsAreWrittenAsTheBuilderWritesThem(t *testing.T) {
	f, taken := taken(t)
	seen := 0
	for i, s := range taken.Body {
		if s.Op == "stablehlo.constant" {
			continue
		}
		var want bytes.Buffer
		require.NoError(t, lowering.BuilderOf(f).Statements[i].Write(&want, "    "))
		m := &ir.Module{Name: "m", Functions: []*ir.Function{{Name: "f", Body: []*ir.Statement{s}}}}
		got, _, err := m.Text()
		require.NoError(t, err)
		assert.Contains(t, string(got), "{\n"+want.String()+"\n  }")
		seen++
	}
	assert.Greater(t, seen, 14)
}

func TestAPlaceholderIsTakenOverAsItIs(t *testing.T) {
	type note struct{ text string }
	opts := lowering.Options{Identity: func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.AddPlaceholder(x, x.Shape(), note{"here"})
	}}
	p := program(t, opts, func(f compute.Function) []compute.Value {
		return []compute.Value{must(t)(f.Identity(must(t)(f.Parameter("x", f32(2), nil))))}
	})
	require.Len(t, p.Main().Body, 2)
	added := p.Main().Body[0]
	assert.Equal(t, note{"here"}, added.Placeholder)
	assert.Same(t, p.Main().Parameters[0].Value, added.Operands[0])
	assert.Same(t, added.Results[0], p.Main().Body[1].Operands[0])
	_, err := p.Text()
	assert.ErrorContains(t, err, "lowering_test.note")
}
