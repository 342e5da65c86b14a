package report

import (
	"flag"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// refused is the report of a program that the compiler refused.
func refused() *Report {
	r := sample()
	r.Predicted, r.Collectives, r.Temporaries, r.Notes, r.Cost = nil, []Collective{}, nil, nil, Cost{FLOPs: -1, BytesAccessed: -1, ModelFLOPs: 7e12}
	r.addRefusal(&Refusal{Used: "31.26G", Limit: "15.75G"})
	r.addAdvice()
	return r
}

// sample is a report with a bit of everything.
func sample() *Report {
	return &Report{
		Version: FormatVersion, Step: "train_step",
		Target:   Target{Name: "v5e:2x2", Kind: "TPU v5 lite", Platform: "TFRT", Devices: 4, Chips: 4, Hosts: 1, HBMBytes: 16 << 30, PeakFLOPS: 197e12, HBMBandwidth: 819e9},
		Replicas: 2, LogicalDevices: 2, Mesh: "replica=2,logical=2",
		Memory: Memory{Arguments: 4 << 30, Outputs: 3 << 30, Aliased: 2 << 30, Temporaries: 6 << 30, Code: 1 << 20, Total: 11<<30 + 1<<20, Needs: 11<<30 + 1<<20,
			Peak: 10 << 30, Limit: 16 << 30, Verdict: Fits},
		Tensors: []Tensor{
			{Role: "variable", Name: "/up/weights", DType: "Float32", Shape: []int{1024, 2048}, Shard: []int{1024, 1024}, Annotation: "1,2",
				Spec: "-,logical", BytesPerCore: 4 << 20, TotalBytes: 8 << 20, Copies: 1, Donated: true, Starts: [][]int{{0, 0}, {0, 1024}}},
			{Role: "variable", Name: "/bias<script>", DType: "Float32", Shape: []int{2048}, Shard: []int{2048}, Annotation: "none", BytesPerCore: 8 << 10, TotalBytes: 8 << 10, Copies: 2},
			{Role: "argument", Name: "argument_0", DType: "Float32", Shape: []int{64, 1024}, Shard: []int{64, 1024}, PerReplica: true, Annotation: "none", BytesPerCore: 256 << 10, TotalBytes: 256 << 10, Copies: 2},
			{Role: "result", Name: "result_0", DType: "Float32", Shape: []int{}, Shard: []int{}, Annotation: "none", BytesPerCore: 4, TotalBytes: 4, Copies: 2},
		},
		Options: map[string]string{"precision": "bf16", "shard-state": "parameters"},
		Temporaries: []Temporary{
			{Operation: "fusion", Source: "/layers/up", DType: "bf16", Shape: []int{64, 2048}, Bytes: 256 << 10, Count: 2},
			{Operation: "copy", DType: "f32", Shape: []int{64}, Bytes: 256, Count: 1},
		},
		Collectives: []Collective{
			{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 3, Bytes: 4 << 20, Moved: 4 << 20},
			{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 1 << 20, Moved: 1 << 20, InLoop: true},
		},
		Cost: Cost{FLOPs: 2e12, BytesAccessed: 3e9, RooflineSeconds: 0.02, Untimed: 36, FloorSeconds: 0.0125, ModelFLOPs: 7e12, Utilization: 0.44},
		Predicted: &Prediction{Seconds: 0.05, Products: 0.03, Closed: 0.001, Memory: 0.012, Interconnect: Overlap{Exposed: 0.008, Hidden: 0.004}, Utilization: 0.178,
			Unknown:   []UnknownTime{{Operation: "custom-call tpu_custom_call", Count: 24}},
			Constants: []Constant{{"time of products over the compiler's cycles", 0.9, "fitted", "a row"}, {"rate of a link", 9e10, "published", "a page"}}},
		Notes: []string{"a note"}, LoweringSeconds: 0.002, CompilingSeconds: 1.5,
	}
}
