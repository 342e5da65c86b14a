package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	passes "github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// A suggestion is made for what a step does not use yet, and for nothing else.
func TestSuggestionsAreForWhatIsNotInUse(t *testing.T) {
	const (
		share, params, more, split, ring, again, less, half, rows = "share the state of training out", "share out the parameters", "use more logical devices",
			"over the logical devices", "ring attention", "compute layers again", "keep less", "bfloat16", "smaller batches"
	)
	all := []string{share, params, more, split, ring, again, less, half, rows}
	w := Tensor{Role: "variable", Name: "/w", Shape: []int{64, 64}, Copies: 1, BytesPerCore: 1 << 30}
	x := Tensor{Role: "argument", PerReplica: true, Shape: []int{8, 16}, Copies: 1}
	moment := Tensor{Role: "variable", Name: "/AdamOptimizer/w_1st_moment", Shape: []int{64, 64}, Copies: 1, BytesPerCore: 1 << 30}
	scores := Temporary{DType: "f32", Shape: []int{2, 4096, 4096}, Bytes: 1 << 27, Line: &Line{File: "me/model.go", Line: 7}}
	cut := func(t Tensor) Tensor { t.Cut = &Cut{Replicas: 2, Part: 32}; return t }
	few := x
	few.Shape = []int{1, 16}
	for name, c := range map[string]struct {
		report Report
		module *spmd.Module
		text   string
		want   []string
	}{
		"nothing is set": {Report{Replicas: 2, LogicalDevices: 1, Tensors: []Tensor{w, moment, x}}, nil, "tensor<8x16xf32>", []string{share, more, again, half, rows}},
		"all is set": {Report{Replicas: 1, LogicalDevices: 2, Tensors: []Tensor{cut(w), cut(moment), few}, Temporaries: []Temporary{scores}},
			&spmd.Module{Keeps: []passes.Keep{{Some: true}}, Origins: []*ir.Origin{nil, {Call: "ring.Attention"}}}, "tensor<8x16xbf16>", nil},
		"the optimizer's state": {Report{Replicas: 2, LogicalDevices: 1, Tensors: []Tensor{w, cut(moment), few}}, nil, "xbf16>", []string{params, more, again}},
		"products are kept":     {Report{Replicas: 1, LogicalDevices: 2, Tensors: []Tensor{w, few}}, &spmd.Module{Keeps: []passes.Keep{{Some: true, Products: true}}}, "xf16>", []string{less}},
		"all is kept":           {Report{Replicas: 1, LogicalDevices: 2, Tensors: []Tensor{w, few}}, &spmd.Module{Keeps: []passes.Keep{{}}}, "xf16>", []string{less}},
		"scores of tokens":      {Report{Replicas: 1, LogicalDevices: 2, Tensors: []Tensor{few}, Temporaries: []Temporary{scores}}, nil, "xf16>", []string{ring}},
	} {
		r := c.report
		r.Memory = Memory{Verdict: TooLarge, Arguments: 2 << 30}
		r.addSuggestions(c.module, []byte(c.text))
		text := strings.Join(r.Suggestions, "\n")
		for _, one := range all {
			assert.Equal(t, slices.Contains(c.want, one), strings.Contains(text, one), "%s: %q in %s", name, one, text)
		}
		assert.Contains(t, text, "a larger slice")
	}
	r := Report{Replicas: 1, LogicalDevices: 2, Tensors: []Tensor{few}, Temporaries: []Temporary{scores}, Memory: Memory{Verdict: TooLarge}}
	r.addSuggestions(nil, nil)
	assert.Contains(t, r.Suggestions[0], "which does not hold f32[2 4096 4096] of me/model.go:7")
	fits := Report{Memory: Memory{Verdict: Fits}}
	fits.addSuggestions(nil, nil)
	assert.Empty(t, fits.Suggestions)
}

// The largest temporaries of a refused program come from the compiler's list, or from the step's text.
func TestARefusedProgramHasItsLargestTemporaries(t *testing.T) {
	origins := []*ir.Origin{{File: "me/model.go", Line: 7}, {File: "me/model.go", Line: 9}}
	listed := &Refusal{Log: `Largest program allocations in hbm:
  1. Size: 8.00G
     Operator: op_type="dot_general" op_name="jit(step)/dot_general_s1"
     Shape: f32[8,16384,16384]{2,1,0:T(8,128)}
     XLA label: fusion.3 = fusion(...)
     Allocation type: HLO temp
     ==========================
  2. Size: 2.00G
     Shape: f32[4096,4096]{1,0}
     Allocation type: arguments
     ==========================`}
	assert.Equal(t, []Temporary{{Operation: "fusion", Source: "jit(step)/dot_general_s1", DType: "f32", Shape: []int{8, 16384, 16384}, Bytes: 8 << 30, Count: 1,
		Line: &Line{File: "me/model.go", Line: 9, Pass: "forward"}}}, listed.temporaries(origins))
	text := `    %1 = "stablehlo.dot_general"(%a, %b) {
      x = 1
    } : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32> loc("dot_general_s0")
    %2 = "stablehlo.add"(%1, %1) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8192x64xf32> loc("add_s1")
    %3 = stablehlo.concatenate %1, %1, dim = 0 : (tensor<8x64xbf16>, tensor<8x64xbf16>) -> tensor<16x64xbf16> loc("concatenate_s1")
    %4 = "stablehlo.gather"(%1) : (tensor<8x64xi32>) -> tensor<8x128xi32> loc("gather_s1")
`
	var got []string
	for _, x := range writtenTemporaries([]byte(text), origins) {
		got = append(got, x.Operation+" "+x.String()+" "+Bytes(x.Bytes)+" "+x.Line.String())
	}
	assert.Equal(t, []string{"gather i32[8 128] 4.00 KiB me/model.go:9", "dot_general f32[8 64] 2.00 KiB me/model.go:7", "concatenate bf16[16 64] 2.00 KiB me/model.go:9"}, got)
}

// The values in fast memory are no part of the main memory's peak.
func TestThePeakIsThatOfTheMainMemory(t *testing.T) {
	m := Memory{Peak: 8539136, Code: 418816, Total: 3861504, Limit: 16 << 30}
	m.leaveOutFast(2864148, 5668864)
	assert.Equal(t, int64(2870272), m.Peak)
	assert.Equal(t, int64(5668864), m.Fast)
	assert.Equal(t, int64(3861504), m.Needs)
	assert.Equal(t, Fits, m.Verdict)
	m = Memory{Peak: 3 << 20}
	m.leaveOutFast(3<<20, 1<<20)
	assert.Equal(t, Memory{Peak: 3 << 20}, m, "a peak of the main memory alone")
}
