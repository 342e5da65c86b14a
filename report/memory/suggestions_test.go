package memory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	passes "github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/internal/units"
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
	moment := Tensor{Role: "variable", Name: "/AdamOptimizer/w_1st_moment", Shape: []int{64, 64}, Copies: 2,
		BytesPerCore: 1 << 30}
	sharedOut := func(t Tensor) Tensor { t.ReplicaShard = &ReplicaShard{Replicas: 2, Size: 32}; return t }
	argument := func(rows int) Tensor {
		return Tensor{Role: "argument", PerReplica: true, Shape: []int{rows, 16}, Copies: 1}
	}
	scores := Temporary{DType: "f32", Shape: []int{2, 4096, 4096}, Bytes: 32 * megabyte,
		Line: &SourceLine{File: "me/model.go", Line: 7}}
	all := passes.RematPolicy{}
	nothing := passes.RematPolicy{Selective: true}
	// plain is a step of 2 replicas of 2 logical devices that uses no option, as changed.
	plain := func(change func(s *Step)) Step {
		s := Step{
			Slice: "v5e:2x2", Devices: 4, Replicas: 2, LogicalDevices: 2, Tensors: []Tensor{w, moment, argument(8)},
			Temporaries: []Temporary{scores},
			Module:      &spmd.Module{Origins: []*ir.Origin{nil, {Pass: ir.Backward}}}, Text: []byte("tensor<8x16xf32>"),
			Settings:      Settings{Microbatches: 1},
			ArgumentBytes: 2 << 30,
		}
		change(&s)
		return s
	}
	policies := func(all ...spmd.Policy) func(s *Step) { return func(s *Step) { s.Module.Policies = all } }
	sharing := func(state logical.StateSharding) func(s *Step) {
		return func(s *Step) { s.Settings.ShardedState = state.Parts() }
	}
	microbatches := func(n, least int, rows ...int) func(s *Step) {
		return func(s *Step) {
			s.Settings.Microbatches, s.Settings.LeastRows, s.Tensors = n, least, nil
			for _, n := range rows {
				s.Tensors = append(s.Tensors, argument(n))
			}
		}
	}
	type made struct {
		change func(s *Step)
		want   string // part of the suggestion, or "" for none
	}
	for name, cases := range map[string][]made{
		"state sharding": {
			{func(*Step) {}, "shard the training state over the replicas"},
			{sharing(logical.ShardNothing), "shard the training state over the replicas"},
			{sharing(logical.ShardOptimizer), "not only the state of the optimizer"},
			{sharing(logical.ShardGradients), "not only the gradients"},
			{sharing(logical.ShardParameters), ""},
			{func(s *Step) { s.Tensors = []Tensor{w, sharedOut(moment)} }, "not only the state of the optimizer"},
			{func(s *Step) { s.Tensors = []Tensor{sharedOut(w), sharedOut(moment)} }, ""},
			{func(s *Step) { s.Replicas = 1 }, ""},
			{func(s *Step) { s.Tensors = []Tensor{argument(8)} }, ""},
		},
		"splits": {
			{func(*Step) {}, "split /w over the logical devices"},
			{func(s *Step) { s.Tensors[0].Copies = 1 }, "such as 4 instead of 2"},
			{func(s *Step) { s.Tensors[0].Shape = []int{63, 63} }, "such as 4 instead of 2"},
			{func(s *Step) { s.Tensors[0].Copies, s.LogicalDevices, s.Replicas = 1, 4, 1 }, ""},
			{func(s *Step) { s.Tensors[0].Copies, s.LogicalDevices, s.Replicas = 1, 1, 4 },
				"use more logical devices, and rules that split /w over them"},
			{func(s *Step) {
				s.Tensors[0].Copies, s.LogicalDevices, s.Replicas, s.Devices = 1, 1, 1, 1
			}, ""},
		},
		"ring attention": {
			{func(*Step) {}, "which does not store f32[2 4096 4096] of me/model.go:7"},
			{func(s *Step) { s.Module.Origins = []*ir.Origin{{Call: "ring.Attention"}} }, ""},
			{func(s *Step) { s.Global = true }, ""},
			{func(s *Step) { s.Devices, s.Replicas, s.LogicalDevices = 1, 1, 1 }, ""},
			{func(s *Step) { s.Temporaries = nil }, ""},
		},
		"rematerialization": {
			{func(*Step) {}, "compute layers again"},
			{func(s *Step) { s.Module.Origins = nil }, ""}, // no backward pass
			{func(s *Step) { s.Global = true }, ""},
			{policies(spmd.Policy{RematPolicy: all}), "save fewer values for the backward pass than all values"},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{Selective: true, Products: true}}), "than the products"},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{Selective: true, Names: []string{"scores"}}}),
				"than values by name"},
			{policies(spmd.Policy{RematPolicy: nothing}, spmd.Policy{RematPolicy: all}), "than all values"},
			{policies(spmd.Policy{RematPolicy: nothing}), ""},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{OnHost: true}, IsLoop: true}), ""},
		},
		"host memory": {
			{policies(spmd.Policy{RematPolicy: nothing, IsLoop: true}), "remat.Policy.OnHost"},
			{policies(spmd.Policy{RematPolicy: passes.RematPolicy{Selective: true, OnHost: true}, IsLoop: true}), ""},
			{policies(spmd.Policy{RematPolicy: nothing}), ""}, // blocks do not support the option
			{func(s *Step) { s.Slice = "h100:4"; s.Module.Policies = []spmd.Policy{{IsLoop: true}} }, ""},
			{func(*Step) {}, ""},
		},
		"half precision": {
			{func(*Step) {}, "compute in bfloat16 (package precision)"},
			{func(s *Step) { s.Text = []byte("tensor<8x16xf32> tensor<8x16xbf16>") }, ""},
			{func(s *Step) { s.Text = []byte("tensor<8x16xf32> tensor<8x16xf16>") }, ""},
			{func(s *Step) { s.Text = []byte("tensor<8x16xi32>") }, ""},
		},
		"microbatches": {
			{func(*Step) {}, "take 2 microbatches instead of 1 (train.Options.Accumulate): a replica has 8 rows"},
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
			{func(*Step) {}, "take smaller batches: a replica has 8 rows"},
			{microbatches(0, 1, 8), "a replica has 8 rows"},
			{microbatches(4, 1, 8), "a replica has 8 rows"},
			{microbatches(8, 1, 8), ""},
			{microbatches(1, 1, 1), ""},
			{microbatches(1, 1), ""},
		},
		"slice": {{func(*Step) {}, "take a larger slice"}},
	} {
		at := slices.IndexFunc(suggestions, func(s suggestion) bool { return s.name == name })
		require.GreaterOrEqual(t, at, 0, name)
		for k, c := range cases {
			s := plain(c.change)
			got := suggestions[at].text(newFeatures(s))
			if c.want == "" {
				assert.Empty(t, got, "%s %d", name, k)
			} else {
				assert.Contains(t, got, c.want, "%s %d", name, k)
			}
			assert.Equal(t, got != "", slices.Contains(s.Suggestions(), got), "%s %d", name, k)
		}
		delete(untested, name)
	}
	assert.Empty(t, untested, "suggestions without a case")
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
	assert.Equal(t, []Temporary{{Operation: "fusion", Source: "jit(step)/dot_general_s1", DType: "f32",
		Shape: []int{8, 16384, 16384}, Bytes: 8 << 30, Count: 1,
		Line: &SourceLine{File: "me/model.go", Line: 9, Pass: "forward"}}}, listed.Temporaries(nil, origins))
	text := `    %1 = "stablehlo.dot_general"(%a, %b) {
      x = 1
    } : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32> loc("dot_general_s0")
    %2 = "stablehlo.add"(%1, %1) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8192x64xf32> loc("add_s1")
    %3 = stablehlo.concatenate %1, %1, dim = 0 : (tensor<8x64xbf16>, tensor<8x64xbf16>) -> tensor<16x64xbf16> loc("concatenate_s1")
    %4 = "stablehlo.gather"(%1) : (tensor<8x64xi32>) -> tensor<8x128xi32> loc("gather_s1")
`
	var got []string
	for _, x := range (&Refusal{}).Temporaries([]byte(text), origins) {
		got = append(got, x.Operation+" "+x.String()+" "+units.Bytes(x.Bytes)+" "+x.Line.String())
	}
	assert.Equal(t, []string{"gather i32[8 128] 4.00 KiB me/model.go:9", "dot_general f32[8 64] 2.00 KiB me/model.go:7",
		"concatenate bf16[16 64] 2.00 KiB me/model.go:9"}, got)
}
