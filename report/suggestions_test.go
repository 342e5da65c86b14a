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
