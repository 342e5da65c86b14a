package report

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	passes "github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Each suggestion is made for steps that do not use its option, and only for them.
func TestNoSuggestionNamesAnOptionThatIsSet(t *testing.T) {
	const megabyte = 1 << 20
	untested := map[string]bool{}
	for _, s := range suggestions {
		untested[s.name] = true
	}
	w := Tensor{Role: "variable", Name: "/w", Shape: []int{64, 64}, Copies: 2, BytesPerCore: 1 << 30}
	moment := Tensor{Role: "variable", Name: "/AdamOptimizer/w_1st_moment", Shape: []int{64, 64}, Copies: 2, BytesPerCore: 1 << 30}
	sharedOut := func(t Tensor) Tensor { t.Cut = &Cut{Replicas: 2, Part: 32}; return t }
	argument := func(rows int) Tensor {
		return Tensor{Role: "argument", PerReplica: true, Shape: []int{rows, 16}, Copies: 1}
	}
	scores := Temporary{DType: "f32", Shape: []int{2, 4096, 4096}, Bytes: 32 * megabyte, Line: &Line{File: "me/model.go", Line: 7}}
	all := passes.RematPolicy{}
	nothing := passes.RematPolicy{Selective: true}
	// step is a step of 2 replicas of 2 logical devices that uses no option, as changed.
	type step struct {
		report Report
		in     Input
	}
	plain := func(change func(s *step)) step {
		s := step{
			Report{Target: Target{Name: "v5e:2x2", Devices: 4}, Replicas: 2, LogicalDevices: 2, Tensors: []Tensor{w, moment, argument(8)}, Temporaries: []Temporary{scores}},
			Input{Module: &spmd.Module{Origins: []*ir.Origin{nil, {Pass: ir.Backward}}}, Text: []byte("tensor<8x16xf32>"), Settings: Settings{Microbatches: 1}},
		}
		change(&s)
		s.report.Memory = Memory{Verdict: TooLarge, Arguments: 2 << 30}
		return s
	}
	policies := func(all ...spmd.Policy) func(s *step) { return func(s *step) { s.in.Module.Policies = all } }
	sharing := func(state logical.StateSharding) func(s *step) {
		return func(s *step) { s.in.Settings.StateSharding = state }
	}
	microbatches := func(n, least int, rows ...int) func(s *step) {
		return func(s *step) {
			s.in.Settings.Microbatches, s.in.Settings.LeastRows, s.report.Tensors = n, least, nil
			for _, n := range rows {
				s.report.Tensors = append(s.report.Tensors, argument(n))
			}
		}
	}
	type made struct {
		change func(s *step)
		want   string // part of the suggestion, or "" for none
	}
	for name, cases := range map[string][]made{
		"state sharding": {
			{func(*step) {}, "share the state of training out"},
			{sharing(logical.ShardNothing), "share the state of training out"},
			{sharing(logical.ShardOptimizer), "not only the state of the optimizer"},
			{sharing(logical.ShardGradients), "not only the gradients"},
			{sharing(logical.ShardParameters), ""},
			{func(s *step) { s.report.Tensors = []Tensor{w, sharedOut(moment)} }, "not only the state of the optimizer"},
			{func(s *step) { s.report.Tensors = []Tensor{sharedOut(w), sharedOut(moment)} }, ""},
			{func(s *step) { s.report.Replicas = 1 }, ""},
			{func(s *step) { s.report.Tensors = []Tensor{argument(8)} }, ""},
		},
		"splits": {
			{func(*step) {}, "split /w over the logical devices"},
			{func(s *step) { s.report.Tensors[0].Copies = 1 }, "such as 4 instead of 2"},
			{func(s *step) { s.report.Tensors[0].Shape = []int{63, 63} }, "such as 4 instead of 2"},
			{func(s *step) { s.report.Tensors[0].Copies, s.report.LogicalDevices, s.report.Replicas = 1, 4, 1 }, ""},
			{func(s *step) { s.report.Tensors[0].Copies, s.report.LogicalDevices, s.report.Replicas = 1, 1, 4 }, "use more logical devices, and rules that split /w over them"},
			{func(s *step) {
				s.report.Tensors[0].Copies, s.report.LogicalDevices, s.report.Replicas, s.report.Target.Devices = 1, 1, 1, 1
			}, ""},
		},
		"ring attention": {
			{func(*step) {}, "which does not hold f32[2 4096 4096] of me/model.go:7"},
			{func(s *step) { s.in.Module.Origins = []*ir.Origin{{Call: "ring.Attention"}} }, ""},
			{func(s *step) { s.in.Global = true }, ""},
			{func(s *step) { s.report.Target.Devices, s.report.Replicas, s.report.LogicalDevices = 1, 1, 1 }, ""},
			{func(s *step) { s.report.Temporaries = nil }, ""},
		},
		"rematerialization": {
			{func(*step) {}, "compute layers again"},
			{func(s *step) { s.in.Module.Origins = nil }, ""}, // no backward pass
			{func(s *step) { s.in.Global = true }, ""},
			{policies(spmd.Policy{RematPolicy: all}), "keep less for the backward pass than all values"},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{Selective: true, Products: true}}), "than the products"},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{Selective: true, Names: []string{"scores"}}}), "than values by name"},
			{policies(spmd.Policy{RematPolicy: nothing}, spmd.Policy{RematPolicy: all}), "than all values"},
			{policies(spmd.Policy{RematPolicy: nothing}), ""},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{OnHost: true}, IsLoop: true}), ""},
		},
		"host memory": {
			{policies(spmd.Policy{RematPolicy: nothing, IsLoop: true}), "remat.Policy.OnHost"},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{Selective: true, OnHost: true}, IsLoop: true}), ""},
			{policies(spmd.Policy{RematPolicy: nothing}), ""}, // blocks do not support the option
			{func(s *step) { s.report.Target.Name = "h100:4"; s.in.Module.Policies = []spmd.Policy{{IsLoop: true}} }, ""},
			{func(*step) {}, ""},
		},
		"half precision": {
			{func(*step) {}, "compute in bfloat16 (package precision)"},
			{func(s *step) { s.in.Text = []byte("tensor<8x16xf32> tensor<8x16xbf16>") }, ""},
			{func(s *step) { s.in.Text = []byte("tensor<8x16xf32> tensor<8x16xf16>") }, ""},
			{func(s *step) { s.in.Text = []byte("tensor<8x16xi32>") }, ""},
		},
		"microbatches": {
			{func(*step) {}, "take 2 microbatches instead of 1 (train.Options.Accumulate): a replica has 8 rows"},
			{microbatches(2, 1, 8), "take 4 microbatches instead of 2"},
			{microbatches(2, 1, 9), "take 9 microbatches instead of 2"},
			{microbatches(2, 1, 15), "take 5 microbatches instead of 2"},
			{microbatches(4, 1, 7), "take 7 microbatches instead of 4"},
			{microbatches(2, 1, 8, 12), "take 4 microbatches instead of 2"},
			{microbatches(4, 1, 8, 12), ""}, // no larger number divides both
			{microbatches(4, 2, 8), ""},     // padded microbatches have at least two rows
			{microbatches(8, 1, 8), ""},
			{microbatches(16, 1, 8), ""},
			{microbatches(1, 1, 1), ""},
			{microbatches(1, 1), ""},
			{microbatches(0, 1, 8), ""}, // not a training step
		},
		"rows": {
			{func(*step) {}, "take smaller batches: a replica has 8 rows"},
			{microbatches(0, 1, 8), "a replica has 8 rows"},
			{microbatches(4, 1, 8), "a replica has 8 rows"},
			{microbatches(8, 1, 8), ""},
			{microbatches(1, 1, 1), ""},
			{microbatches(1, 1), ""},
		},
		"slice": {{func(*step) {}, "take a larger slice"}},
	} {
		at := slices.IndexFunc(suggestions, func(s suggestion) bool { return s.name == name })
		require.GreaterOrEqual(t, at, 0, name)
		for k, c := range cases {
			s := plain(c.change)
			got := suggestions[at].text(newUsage(&s.report, s.in))
			if c.want == "" {
				assert.Empty(t, got, "%s %d", name, k)
			} else {
				assert.Contains(t, got, c.want, "%s %d", name, k)
			}
			s.report.addSuggestions(s.in)
			assert.Equal(t, got != "", slices.Contains(s.report.Suggestions, got), "%s %d", name, k)
		}
		delete(untested, name)
	}
	assert.Empty(t, untested, "suggestions without a case")
	fits := Report{Memory: Memory{Verdict: Fits}}
	fits.addSuggestions(Input{})
	assert.Empty(t, fits.Suggestions)
}

// The largest temporaries of a rejected program are read from the compiler's list, or from the
// step's text.
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

// The compiler's peak contains the fast memory, and the report's peak does not.
func TestThePeakIsThatOfTheMainMemory(t *testing.T) {
	m := Memory{Peak: 8539136, Code: 418816, Total: 3861504, Limit: 16 << 30}
	m.leaveOutFast(2864148, 5668864, 8533012)
	assert.Equal(t, int64(2864148), m.Peak, "the schedule's figure, as the fast memory is most of the compiler's")
	assert.Equal(t, int64(5668864), m.Fast)
	assert.Equal(t, int64(3861504), m.Needs)
	assert.Equal(t, Fits, m.Verdict)
	m = Memory{Peak: 8 << 30}
	m.leaveOutFast(7<<30, 100<<20, 7<<30)
	assert.Equal(t, int64(8<<30-100<<20), m.Peak, "the compiler's figure")
	m = Memory{Peak: 12 << 20}
	m.leaveOutFast(3<<20, 2<<20, 5<<20)
	assert.Equal(t, int64(10<<20), m.Peak, "the schedule does not explain the compiler's figure")
	m = Memory{Peak: 3 << 20}
	m.leaveOutFast(3<<20, 1<<20, 4<<20)
	assert.Equal(t, Memory{Peak: 3 << 20}, m, "a peak of the main memory alone")
}
