package weights_test

import (
	"context"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

func x32(name string, shape ...int) weights.Tensor {
	return weights.Tensor{Name: name, DType: "F32", Shape: shape}
}

func v32(path string, shape ...int) weights.Variable {
	return weights.Variable{Path: path, DType: dtypes.Float32, Shape: shape}
}

var turned = []weights.Step{{Transpose: []int{1, 0}}}

func to(variable string, steps ...weights.Step) []weights.Target {
	return []weights.Target{{Variable: variable, Steps: steps}}
}

// TestWhatDoesNotFitIsListed checks the faults that a plan finds and their hints.
func TestWhatDoesNotFitIsListed(t *testing.T) {
	stack := weights.Rules{{Tensor: `l\.(\d+)\.w`, To: []weights.Target{{Variable: "/l/w", Stack: "{1}"}}}}
	apart := weights.Rules{{Tensor: `l\.(\d+)\.w`, To: []weights.Target{{Variable: "/layer{1:02}/w"}}}}
	var deep []weights.Tensor
	for _, n := range []string{"0", "1", "2", "3"} {
		deep = append(deep, x32("l."+n+".w", 3))
	}
	fused := func(parts ...weights.Slice) weights.Rules {
		r := weights.Rule{Tensor: "qkv"}
		for i, name := range []string{"/q", "/k"}[:len(parts)] {
			r.To = append(r.To, weights.Target{Variable: name, Steps: []weights.Step{{Slice: &parts[i]}}})
		}
		return weights.Rules{r}
	}
	for name, c := range map[string]struct {
		tensors   []weights.Tensor
		variables []weights.Variable
		rules     weights.Rules
		problems  []weights.MismatchKind
		says      string
	}{
		"a tensor without a rule": {[]weights.Tensor{x32("a", 1), x32("b.c", 2)}, []weights.Variable{v32("/a", 1)},
			weights.Rules{{Tensor: "a", To: to("/a")}}, []weights.MismatchKind{weights.Unused},
			"F32[2], which no rule matches; add a rule for it, or {Tensor: `b\\.c`, Ignore: true}"},
		"a variable without a tensor": {[]weights.Tensor{x32("a", 1)}, []weights.Variable{v32("/a", 1), v32("/b", 2)},
			weights.Rules{{Tensor: "a", To: to("/a")}}, []weights.MismatchKind{weights.Missing},
			`variable "/b": Float32[2], which no tensor fills`},
		"a variable that is not there": {[]weights.Tensor{x32("a", 1)}, nil, weights.Rules{{Tensor: "a", To: to("/a")}},
			[]weights.MismatchKind{weights.Unused}, "the model has no such variable"},
		"a transpose that lacks": {[]weights.Tensor{x32("a", 2, 3)}, []weights.Variable{v32("/a", 3, 2)},
			weights.Rules{{Tensor: "a", To: to("/a")}}, []weights.MismatchKind{weights.ShapeMismatch},
			"the tensor [2 3] becomes [2 3], and the variable is [3 2]; add the step {Transpose: []int{1, 0}}"},
		"a reshape that lacks": {[]weights.Tensor{x32("a", 6, 4)}, []weights.Variable{v32("/a", 4, 2, 3)},
			weights.Rules{{Tensor: "a", To: to("/a", turned...)}}, []weights.MismatchKind{weights.ShapeMismatch},
			"add steps that reshape and transpose it to [4 2 3]"},
		"another width": {[]weights.Tensor{x32("a", 6, 4)}, []weights.Variable{v32("/a", 6, 5)},
			weights.Rules{{Tensor: "a", To: to("/a")}}, []weights.MismatchKind{weights.ShapeMismatch}, "config.json"},
		"a transpose of another rank": {[]weights.Tensor{x32("a", 6)}, []weights.Variable{v32("/a", 6)},
			weights.Rules{{Tensor: "a", To: to("/a", turned...)}}, []weights.MismatchKind{weights.ShapeMismatch},
			"a transpose of 2 dimensions, the tensor has 1, [6]"},
		"a transpose that is no order": {[]weights.Tensor{x32("a", 6, 2)}, []weights.Variable{v32("/a", 6, 2)},
			weights.Rules{{Tensor: "a", To: to("/a", weights.Step{Transpose: []int{1, 1}})}},
			[]weights.MismatchKind{weights.ShapeMismatch}, "[1 1] is no order"},
		"a reshape of other elements": {[]weights.Tensor{x32("a", 6)}, []weights.Variable{v32("/a", 6)},
			weights.Rules{{Tensor: "a", To: to("/a", weights.Step{Reshape: []int{4, -1}})}},
			[]weights.MismatchKind{weights.ShapeMismatch}, "6 elements do not divide by 4"},
		"a cut beyond": {[]weights.Tensor{x32("a", 6)}, []weights.Variable{v32("/a", 6)},
			weights.Rules{{Tensor: "a", To: to("/a", weights.Step{Slice: &weights.Slice{Start: 3, End: 7}})}},
			[]weights.MismatchKind{weights.ShapeMismatch}, "3:7"},
		"files of more layers": {deep, []weights.Variable{v32("/l/w", 2, 3)}, stack,
			[]weights.MismatchKind{weights.Unused},
			"it is a stack of 2 layers, [2 3], and the files have 4 layers; make the model with 4 layers"},
		"files of fewer layers": {deep, []weights.Variable{v32("/l/w", 24, 3)}, stack,
			[]weights.MismatchKind{weights.Missing},
			"it is a stack of 24 layers, [24 3], and the files have no layer 4, 5, ..., 23"},
		"layers apart, of more": {deep, []weights.Variable{v32("/layer00/w", 3), v32("/layer01/w", 3),
			v32("/layer02/w", 3)}, apart, []weights.MismatchKind{weights.Unused}, `variable "/layer03/w"`},
		"layers apart, of fewer": {deep[:1], []weights.Variable{v32("/layer00/w", 3), v32("/layer01/w", 3)}, apart,
			[]weights.MismatchKind{weights.Missing}, `variable "/layer01/w"`},
		"a layer twice": {append(deep[:4:4], x32("l.01.w", 3)), []weights.Variable{v32("/l/w", 4, 3)},
			stack, []weights.MismatchKind{weights.Duplicate}, "fills the same elements"},
		"a layer of a huge number": {[]weights.Tensor{x32("l.9223372036854775807.w", 3)},
			[]weights.Variable{v32("/l/w", 4, 3)}, stack, []weights.MismatchKind{weights.ShapeMismatch},
			"is no index of a stack"},
		"a layer of a scalar": {deep[:1], []weights.Variable{v32("/l/w")}, stack,
			[]weights.MismatchKind{weights.ShapeMismatch}, "a slice of a scalar"},
		"two rules for a tensor": {[]weights.Tensor{x32("a", 1)},
			[]weights.Variable{{Path: "/a", DType: dtypes.Float32, Shape: []int{1}, Optional: true}},
			weights.Rules{{Tensor: "a", To: to("/a")}, {Tensor: ".*", Ignore: true}}, []weights.MismatchKind{weights.Duplicate},
			"rules 0 (a) and 1 (.*) match it"},
		"two tensors for a variable": {[]weights.Tensor{x32("a", 1), x32("b", 1)}, []weights.Variable{v32("/a", 1)},
			weights.Rules{{Tensor: "a|b", To: to("/a")}}, []weights.MismatchKind{weights.Duplicate}, "fills the same elements"},
		"a rule for nothing": {[]weights.Tensor{x32("a", 1)}, []weights.Variable{v32("/a", 1)},
			weights.Rules{{Tensor: "a", To: to("/a")}, {Tensor: "b", To: to("/a")}},
			[]weights.MismatchKind{weights.UnmatchedRule}, "rule 1 (b) matches no tensor"},
		"a fused tensor, half used": {[]weights.Tensor{x32("qkv", 6, 2)}, []weights.Variable{v32("/q", 3, 2)},
			fused(weights.Slice{Parts: 2}), []weights.MismatchKind{weights.Unused}, "6 elements of [6 2] are in no slice"},
		"a fused tensor of odd size": {[]weights.Tensor{x32("qkv", 7, 2)}, []weights.Variable{v32("/q", 3, 2)},
			fused(weights.Slice{Parts: 2}), []weights.MismatchKind{weights.ShapeMismatch},
			"dimension 0 of 7 does not divide by 2"},
		"cuts that overlap and leave": {[]weights.Tensor{x32("qkv", 6, 2)}, []weights.Variable{v32("/q", 3, 2),
			v32("/k", 3, 2)}, fused(weights.Slice{Start: 0, End: 3}, weights.Slice{Start: 2, End: 5}),
			[]weights.MismatchKind{weights.Unused}, "2 elements of [6 2] are in no slice"},
		"integers for floats": {[]weights.Tensor{{Name: "a", DType: "I32", Shape: []int{1}}},
			[]weights.Variable{v32("/a", 1)}, weights.Rules{{Tensor: "a", To: to("/a")}},
			[]weights.MismatchKind{weights.DTypeMismatch}, "a tensor of I32 cannot become Float32"},
		"packed numbers": {[]weights.Tensor{{Name: "a", DType: "F4", Shape: []int{2}}},
			[]weights.Variable{v32("/a", 2)}, weights.Rules{{Tensor: "a", To: to("/a")}},
			[]weights.MismatchKind{weights.DTypeMismatch}, "have to be unpacked before"},
		"one added to integers": {[]weights.Tensor{{Name: "a", DType: "I32", Shape: []int{1}}},
			[]weights.Variable{{Path: "/a", DType: dtypes.Int32, Shape: []int{1}}},
			weights.Rules{{Tensor: "a", To: []weights.Target{{Variable: "/a", Add: 1}}}},
			[]weights.MismatchKind{weights.DTypeMismatch}, "1 is added to a variable of Int32"},
		"a part that does not fit beside": {[]weights.Tensor{x32("a", 2), x32("b", 3)}, []weights.Variable{v32("/a", 6)},
			weights.Rules{{Tensor: "a", To: []weights.Target{{Variable: "/a", Segment: &weights.Segment{Parts: 2}}}},
				{Tensor: "b", To: []weights.Target{{Variable: "/a", Segment: &weights.Segment{Index: 1, Parts: 2}}}}},
			[]weights.MismatchKind{weights.ShapeMismatch}, "of which it is a part along dimension 0"},
		"a part that lacks": {[]weights.Tensor{x32("a", 2)}, []weights.Variable{v32("/a", 6)},
			weights.Rules{{Tensor: "a", To: []weights.Target{{Variable: "/a", Segment: &weights.Segment{Parts: 3}}}}},
			[]weights.MismatchKind{weights.Missing}, "the tensors fill 2 of the 6 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := weights.NewPlan(c.tensors, c.variables, c.rules, weights.PlanOptions{})
			var wrong *weights.PlanError
			require.ErrorAs(t, err, &wrong)
			var problems []weights.MismatchKind
			for _, f := range wrong.Mismatches {
				problems = append(problems, f.Kind)
			}
			assert.Equal(t, c.problems, problems, "%v", err)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		})
	}
}

// TestFusedStackedAndSharedTensors reads variables of each form that rules support.
func TestFusedStackedAndSharedTensors(t *testing.T) {
	rules, err := weights.ParseRules([]byte(`[
		{"tensor": "h\\.(\\d+)\\.qkv", "to": [
			{"variable": "/l/q", "stack": "{1}", "steps": [{"reshape": [3, 2, 4]}, {"cut": {"dim": 0, "from": 0, "to": 1}}, {"reshape": [2, 4]}, {"transpose": [1, 0]}]},
			{"variable": "/l/kv", "stack": "{1}", "steps": [{"cut": {"dim": 0, "from": 2, "to": 6}}], "add": 1}]},
		{"tensor": "gate", "to": [{"variable": "/gate_up", "part": {"dim": 1, "part": 0, "of": 2}}]},
		{"tensor": "up", "to": [{"variable": "/gate_up", "part": {"dim": 1, "from": 3}}]},
		{"tensor": "emb", "to": [{"variable": "/emb"}, {"variable": "/head", "steps": [{"transpose": [1, 0]}]}]},
		{"tensor": ".*\\.inv_freq", "ignore": true},
		{"tensor": "bias", "to": [{"variable": "/bias"}], "optional": true}
	]`))
	require.NoError(t, err)
	emb, gate, up := counting(0, 3, 2), counting(0, 2, 3), counting(50, 2, 3)
	f := open(t, tensor{"h.0.qkv", safetensors.F32, counting(0, 6, 4)}, tensor{"h.1.qkv", safetensors.F32,
		counting(100, 6, 4)},
		tensor{"gate", safetensors.F32, gate}, tensor{"up", safetensors.F32, up}, tensor{"emb", safetensors.F32, emb},
		tensor{"h.0.inv_freq", safetensors.F64, counting(0, 2)})
	p, err := weights.NewPlan(f.Tensors(), nil, rules, weights.PlanOptions{Create: dtypes.Float32})
	require.NoError(t, err)
	want := map[string][]float64{
		"/l/q":     {0, 4, 1, 5, 2, 6, 3, 7, 100, 104, 101, 105, 102, 106, 103, 107},
		"/gate_up": {0, 1, 2, 50, 51, 52, 3, 4, 5, 53, 54, 55},
		"/emb":     emb.values, "/head": {0, 2, 4, 1, 3, 5},
		"/l/kv": append(counting(9, 16).values, counting(109, 16).values...),
	}
	shapes := map[string][]int{"/l/q": {2, 4, 2}, "/l/kv": {2, 4, 4}, "/gate_up": {2, 6}, "/emb": {3, 2}, "/head": {2, 3}}
	require.Len(t, p.Variables(), len(want))
	for _, v := range p.Variables() {
		assert.Equal(t, shapes[v.Path], v.Shape, v.Path)
		assert.Equal(t, want[v.Path], read(t, p, f, v, make([]int, len(v.Shape)), v.Shape), v.Path)
	}
	for _, box := range [][2][]int{{{0}, {1}}, {{0, 0}, {2, 7}}, {{-1, 0}, {1, 1}}, {{0, 0}, {1, math.MaxInt}}} {
		err := p.Read(context.Background(), f, "/gate_up", box[0], box[1], nil)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", box)
	}
	assert.Error(t, p.Read(context.Background(), f, "/absent", nil, nil, nil))
}

// TestRulesThatSayNothingAreRefused uses invalid rules, in Go and in JSON.
func TestRulesThatSayNothingAreRefused(t *testing.T) {
	for says, rules := range map[string]weights.Rules{
		"an invalid pattern":                {{Tensor: "(", Ignore: true}},
		"it needs either targets or Ignore": {{Tensor: "a"}},
		"needs either targets or Ignore":    {{Tensor: "a", Ignore: true, To: to("/a")}},
		`the variable "a" has no path`:      {{Tensor: "a", To: to("a")}},
		"the pattern has 0 groups":          {{Tensor: "a", To: to("/a{1}")}},
		"{x} is no reference to a grou":     {{Tensor: "a", To: to("/a{x}")}},
		`a step of variable "/a" has 0`:     {{Tensor: "a", To: to("/a", weights.Step{})}},
		`a step of variable "/a" has 2`: {{Tensor: "a", To: to("/a", weights.Step{Reshape: []int{1},
			Transpose: []int{0}})}},
		`the segment of variable "/a" is `: {{Tensor: "a",
			To: []weights.Target{{Variable: "/a", Segment: &weights.Segment{Index: 2, Parts: 2}}}}},
	} {
		_, err := weights.NewPlan(nil, nil, rules, weights.PlanOptions{})
		assert.ErrorContains(t, err, says)
	}
	for says, text := range map[string]string{
		"unknown field":           `[{"tensors": "a"}]`,
		"text after":              `[] []`,
		"not read":                `{`,
		"it needs either targets": `[{"tensor": "a"}]`,
	} {
		_, err := weights.ParseRules([]byte(text))
		assert.ErrorContains(t, err, says)
	}
}

// TestNumbersKeepTheirMeaning converts the extreme numbers of each dtype. NaNs stay NaNs.
func TestNumbersKeepTheirMeaning(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		file  safetensors.DType
		to    dtypes.DType
		bytes string
		want  []float64
	}{
		{safetensors.F16, dtypes.Float32, "\x00\x3c\x00\xc0\xff\x7b\x00\x7c\x00\x7e\x01\x00\x00\x80", []float64{1, -2, 65504,
			inf, nan, math.Ldexp(1, -24), 0}},
		{safetensors.BF16, dtypes.Float32, "\x80\x3f\x80\x7f\xc0\x7f\x7f\x7f\x01\x00", []float64{1, inf, nan,
			math.Ldexp(255, 120), math.Ldexp(1, -133)}},
		{safetensors.F8E5M2, dtypes.Float32, "\x3c\x7b\x7c\x7f\x01", []float64{1, 57344, inf, nan, math.Ldexp(1, -16)}},
		{safetensors.F8E4M3, dtypes.Float32, "\x38\x7e\x7f\x01\xb8", []float64{1, 448, nan, math.Ldexp(1, -9), -1}},
		{safetensors.F32, dtypes.BFloat16, "\x00\x80\x80\x3f\x00\x80\x81\x3f\x01\x80\x80\x3f\x01\x00\xa0\x7f",
			[]float64{1, 1.015625, 1.0078125, nan}},
		{safetensors.F64, dtypes.BFloat16, "\x00\x00\x00\x00\x00\x00\xf0\x3f", []float64{1}},
	} {
		n := len(c.bytes) * 8 / c.file.Bits()
		got := convert(t, c.file, c.to, c.bytes, n)
		require.Len(t, got, n)
		for i := range got {
			if math.IsNaN(c.want[i]) {
				assert.True(t, math.IsNaN(got[i]), "%s %d: %v", c.file, i, got[i])
			} else {
				assert.Equal(t, c.want[i], got[i], "%s %d", c.file, i)
			}
		}
	}
}

// convert converts elements of a file to elements of a variable.
func convert(t *testing.T, from safetensors.DType, to dtypes.DType, data string, n int) []float64 {
	t.Helper()
	f := openRaw(t, from, data, n)
	v := weights.Variable{Path: "/x", DType: to, Shape: []int{n}}
	p, err := weights.NewPlan(f.Tensors(), []weights.Variable{v},
		weights.Rules{{Tensor: "x", To: []weights.Target{{Variable: "/x"}}}}, weights.PlanOptions{})
	require.NoError(t, err)
	return read(t, p, f, v, []int{0}, []int{n})
}

// TestANumberThatIsTooLargeIsAnError checks that no weight becomes infinite without an error.
func TestANumberThatIsTooLargeIsAnError(t *testing.T) {
	for _, c := range []struct {
		to    dtypes.DType
		value float64
	}{{dtypes.Float16, 65520}, {dtypes.Float32, 1e39}, {dtypes.BFloat16, 3.4e38 * 1.002}} {
		f := open(t, tensor{"x", safetensors.F64, array{[]int{2}, []float64{1, c.value}}})
		p, err := weights.NewPlan(f.Tensors(), []weights.Variable{{Path: "/x", DType: c.to, Shape: []int{2}}},
			weights.Rules{{Tensor: "x", To: to("/x")}}, weights.PlanOptions{})
		require.NoError(t, err)
		err = p.Read(context.Background(), f, "/x", []int{0}, []int{2}, make([]byte, 2*c.to.Size()))
		require.ErrorContains(t, err, "too large for the dtype", c.to.String())
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
