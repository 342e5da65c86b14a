package report

import (
	"flag"

	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// refused returns the report of a program that the compiler rejected.
func refused() *Report {
	r := sample()
	r.Schedule, r.Torus, r.Lines, r.AnnotationSuggestions = nil, nil, nil, nil
	r.Predicted, r.Collectives, r.Temporaries, r.Notes, r.Cost = nil, []Collective{}, nil, nil,
		Cost{FLOPs: -1, BytesAccessed: -1, ModelFLOPs: 7e12}
	r.addRefusal(&memory.Refusal{Used: "31.26G", Limit: "15.75G"})
	r.addSuggestions(Input{})
	return r
}

// sample returns a report with all kinds of content.
func sample() *Report {
	return &Report{
		Version: formatVersion, Step: "train_step",
		Target: Target{Name: "v5e:2x2", Kind: "TPU v5 lite", Platform: "TFRT", Devices: 4, Chips: 4, Hosts: 1,
			HBMBytes: 16 << 30, PeakFLOPS: 197e12, HBMBandwidth: 819e9},
		Replicas: 2, LogicalDevices: 2, Mesh: "replica=2,logical=2",
		Memory: Memory{Arguments: 4 << 30, Outputs: 3 << 30, Aliased: 2 << 30, Temporaries: 6 << 30, Code: 1 << 20,
			Total: 11<<30 + 1<<20, Needs: 11<<30 + 1<<20,
			Peak: 10 << 30, Limit: 16 << 30, Verdict: Fits},
		Tensors: []memory.Tensor{
			{Role: "variable", Name: "/up/weights", DType: "Float32", Shape: []int{1024, 2048}, Shard: []int{1024, 1024},
				Annotation: "1,2",
				Spec:       "-,logical", BytesPerCore: 4 << 20, TotalBytes: 8 << 20, Copies: 1, Donated: true,
				Starts: [][]int{{0, 0},
					{0, 1024}}},
			{Role: "variable", Name: "/bias<script>", DType: "Float32", Shape: []int{2048}, Shard: []int{2048},
				Annotation: "none", BytesPerCore: 8 << 10, TotalBytes: 8 << 10, Copies: 2},
			{Role: "argument", Name: "argument_0", DType: "Float32", Shape: []int{64, 1024}, Shard: []int{64, 1024},
				PerReplica: true, Annotation: "none", BytesPerCore: 256 << 10, TotalBytes: 256 << 10, Copies: 2},
			{Role: "result", Name: "result_0", DType: "Float32", Shape: []int{}, Shard: []int{}, Annotation: "none",
				BytesPerCore: 4, TotalBytes: 4, Copies: 2},
		},
		Options: map[string]string{"precision": "bf16", "shard-state": "parameters"},
		Temporaries: []memory.Temporary{
			{Operation: "fusion", Source: "/layers/up", DType: "bf16", Shape: []int{64, 2048}, Bytes: 256 << 10, Count: 2},
			{Operation: "copy", DType: "f32", Shape: []int{64}, Bytes: 256, Count: 1},
		},
		Collectives: []Collective{
			{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 3, Bytes: 4 << 20, Moved: 4 << 20},
			{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 1 << 20, Moved: 1 << 20, InLoop: true},
		},
		Cost: Cost{FLOPs: 2e12, BytesAccessed: 3e9, RooflineSeconds: 0.02, Untimed: 36, FloorSeconds: 0.0125,
			ModelFLOPs: 7e12, Utilization: 0.44},
		Predicted: &cost.Prediction{Seconds: 0.05, Products: 0.03, Closed: 0.001, Memory: 0.012,
			Interconnect: cost.Overlap{Exposed: 0.008, Hidden: 0.004}, Utilization: 0.178,
			Unknown: []cost.UnknownTime{{Operation: "custom-call tpu_custom_call", Count: 24}},
			Constants: []cost.Constant{{Name: "time of products over the compiler's cycles", Value: 0.9, Basis: "fitted",
				Source: "a row"}, {Name: "rate of a link", Value: 9e10, Basis: "published", Source: "a page"}}},
		Schedule: &Schedule{
			Operations: []cost.Operation{
				{Number: 0, Name: "gather", Operation: "all-gather-start", Layer: "up", InUse: 4 << 30,
					Beside: &cost.Transfer{On: "interconnect", Seconds: 0.012}},
				{Number: 1, Name: "loop", Operation: "while", CoreTime: cost.CoreTime{Products: 0.03, Memory: 0.01}, InUse: 9 << 30,
					Iterations: 4, Inside: []cost.Operation{
						{Number: 2, Name: "product", Operation: "fusion", Source: "/layers/up", Layer: "up", Line: 1,
							CoreTime: cost.CoreTime{Products: 0.0075}, InUse: 9 << 30},
						{Number: 3, Joined: 7, Layer: "down", Start: 0.0075, CoreTime: cost.CoreTime{Memory: 0.0025}, InUse: 5 << 30},
					}},
				{Number: 4, Name: "gathered", Operation: "all-gather-done", Start: 0.04,
					CoreTime: cost.CoreTime{Interconnect: 0.008}, InUse: 5 << 30},
				{Number: 5, Name: "update", Operation: "fusion", Layer: "<b>", Start: 0.048, CoreTime: cost.CoreTime{Memory: 0.002},
					InUse: 5 << 30},
			},
			Values: []Value{
				{Role: "temporary", Name: "product", Source: "/layers/up", Layer: "up", Line: 1, DType: "bf16",
					Shape: []int{1 << 15, 1 << 16}, Bytes: 4 << 30, From: 2, To: 2},
				{Role: "variable", Name: "/up/weights", DType: "f32", Shape: []int{1 << 15, 1 << 14}, Bytes: 2 << 30, From: 0,
					To: 5},
				{Role: "variable", Name: "/layer_1/weights", DType: "f32", Shape: []int{1 << 14, 1 << 14}, Bytes: 1 << 30, From: 0,
					To: 5},
				{Role: "variable", Name: "/layer_2/weights", DType: "f32", Shape: []int{1 << 14, 1 << 14}, Bytes: 1 << 30, From: 0,
					To: 5},
				{Role: "temporary", Name: "gather", Layer: "up", DType: "f32", Shape: []int{1 << 14, 1 << 14}, Bytes: 1 << 30,
					From: 0, To: 4},
			},
			Peak: 9 << 30, PeakAt: 2,
			Layers: []LayerTime{{"up", "products", 0.03}, {"down", "memory", 0.01}, {"", "interconnect", 0.008},
				{"<b>", "memory", 0.002}},
		},
		Lines: []Line{
			{SourceLine: memory.SourceLine{File: "github.com/me/demo/model/net.go", Line: 41, Function: "model.Net.Loss",
				Call: "layers.Dense", Layer: "up", Pass: "forward"},
				CoreTime: cost.CoreTime{Products: 0.02, Interconnect: 0.002}, PeakBytes: 4 << 30,
				Collectives: []Collective{{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 1 << 20,
					Moved: 1 << 20}}},
			{SourceLine: memory.SourceLine{File: "github.com/me/demo/model/net.go", Line: 41, Function: "model.Net.Loss",
				Call: "layers.Dense", Layer: "up", Pass: "backward"}, CoreTime: cost.CoreTime{Products: 0.01}, PeakBytes: 1 << 30},
			{SourceLine: memory.SourceLine{File: "main.go", Line: 12, Function: "main.<b>", Layer: "<b>", Pass: "update"},
				CoreTime: cost.CoreTime{Memory: 0.012, Interconnect: 0.005}, PeakBytes: 3 << 30,
				Collectives: []Collective{{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 3, Bytes: 4 << 20,
					Moved: 4 << 20}}},
			{CoreTime: cost.CoreTime{Interconnect: 0.001}, PeakBytes: 1 << 30},
		},
		AnnotationSuggestions: &AnnotationSuggestions{Now: AnnotationFigures{Sent: 5 << 20, Seconds: 0.05, Peak: 9 << 30},
			Tried: 6, Refused: 1, Left: 3, All: []AnnotationSuggestion{
				{Name: "/up*/<b>", Count: 2, From: "2,1", To: "1,2", After: AnnotationFigures{Sent: 4 << 20, Seconds: 0.048,
					Peak: 9 << 30}, Removes: []Line{
					{SourceLine: memory.SourceLine{File: "github.com/me/demo/model/net.go", Line: 41, Layer: "up*", Pass: "forward"},
						Collectives: []Collective{{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 1 << 20,
							Moved: 1 << 20}}}}},
				{At: &memory.SourceLine{File: "main.go", Line: 12}, From: "replicate", To: "none", Adds: []Line{
					{SourceLine: memory.SourceLine{File: "main.go", Line: 14, Pass: "forward"},
						Collectives: []Collective{{Kind: "all-to-all", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 2048,
							Moved: 1024}}}}, After: AnnotationFigures{Sent: 4 << 20, Seconds: 0.049, Peak: 8 << 30}, Removes: []Line{
					{SourceLine: memory.SourceLine{File: "main.go", Line: 13, Pass: "backward"},
						Collectives: []Collective{{Kind: "all-reduce", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 1 << 20,
							Moved: 1 << 20}}}}},
			}},
		Torus: &cost.Torus{Shape: [3]int{2, 2, 1}, Slices: 1, DevicesPerChip: 1, Places: [][4]int{{0, 0}, {1, 0}, {0, 1},
			{1, 1}},
			Groups: []cost.AxisGroups{{Axis: "logical", Groups: [][]int{{0, 1}, {2, 3}}},
				{Axis: "replica", Groups: [][]int{{0, 2}, {1, 3}}}},
			Links: []cost.Link{{Chip: [3]int{0, 0, 0}, Axis: 0, Bytes: 4 << 20, Back: 4 << 20}, {Chip: [3]int{0, 0, 0}, Axis: 1,
				Bytes: 1 << 20, Back: 1 << 20}, {Chip: [3]int{0, 1, 0}, Axis: 0, Bytes: 4 << 20, Back: 4 << 20},
				{Chip: [3]int{1, 0, 0}, Axis: 1, Bytes: 1 << 20, Back: 0}}},
		Notes: []string{"a note"}, LoweringSeconds: 0.002, CompilingSeconds: 1.5,
	}
}
