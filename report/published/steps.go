package published

// Step is a published training step of a decoder with gated dense layers, attention per head,
// float32 variables, computation in bfloat16, Adam, and rematerialized layers.
type Step struct {
	// Row is the number in the project's list of published measurements.
	Row  int
	Name string
	// Slice is the name of the slice. Model is the size of the axis that splits layers; the
	// variables are sharded over the replicas.
	Slice string
	Model int
	// Chips is the number of chips of the slice. Rows is the number of batch rows per chip.
	Chips, Rows, Sequence                              int
	Layers, Width, Heads, KeyHeads, Hidden, Vocabulary int
	// HeadSize is the number of features of a head.
	HeadSize int
	// Remat is the set of recomputed values: full, or products (all values except products), which
	// the recipes call minimal.
	Remat string
	// TFLOPs are the published operations per second of a chip, in 10^12, by the source's count.
	TFLOPs float64
	Source string
	// Lacks is the feature that the decoder of examples/gpt does not have, so that the step cannot
	// be expressed. Differs describes other differences from the decoder and their effect.
	Lacks, Differs string
}

// Seconds returns the published time of a step of a decoder with the given number of parameters.
// The source counts six operations per parameter and token, and attention as if it were not causal.
func (s Step) Seconds(parameters int) float64 { return s.Asked(parameters) / (s.TFLOPs * 1e12) }

// Asked returns the number of operations of a chip in a step, counted as in [Step.Seconds].
func (s Step) Asked(parameters int) float64 {
	tokens := float64(s.Rows * s.Sequence)
	return (6*float64(parameters) + 12*float64(s.Layers*s.Heads*s.HeadSize*s.Sequence)) * tokens
}

const (
	kernel  = "predicted with a kernel for attention, with which it was measured"
	matrix  = "; by its size its dense layers have two matrices, those of the decoder three"
	offload = "values that wait in host memory for the backward pass"
	other   = "another architecture"
)

// Steps returns all published steps, including steps that this module cannot express.
func Steps() []Step {
	all := []Step{
		{Row: 1, Name: "16B", Slice: "v5e-256", Chips: 256, Rows: 6, Layers: 32, Width: 4096, Heads: 64, Hidden: 28672,
			Remat: "full", TFLOPs: 120},
		{Row: 2, Name: "32B", Slice: "v5e-256", Chips: 256, Rows: 4, Layers: 32, Width: 8192, Heads: 64, Hidden: 28672,
			Remat: "full", TFLOPs: 132},
		{Row: 3, Name: "64B", Slice: "v5e-256", Chips: 256, Rows: 2, Layers: 64, Width: 8192, Heads: 64, Hidden: 28672,
			Remat: "full", TFLOPs: 118},
		{Row: 4, Name: "128B", Slice: "v5e-256", Chips: 256, Rows: 1, Model: 16, Layers: 64, Width: 8192, Heads: 128,
			Hidden: 57344, Remat: "full", TFLOPs: 110, Lacks: offload},
		{Row: 5, Name: "32B", Slice: "v5p-128", Chips: 64, Rows: 6, Model: 4, Layers: 32, Width: 8192, Heads: 64,
			Hidden: 28672, Remat: "products", TFLOPs: 328},
		{Row: 6, Name: "64B", Slice: "v5p-128", Chips: 64, Rows: 3, Model: 4, Layers: 64, Width: 8192, Heads: 64,
			Hidden: 28672, Remat: "products", TFLOPs: 323},
		{Row: 7, Name: "128B", Slice: "v5p-256", Chips: 128, Rows: 1, Model: 8, Layers: 64, Width: 8192, Heads: 128,
			Hidden: 57344, Remat: "products", TFLOPs: 315},
		{Row: 8, Name: "256B", Slice: "v5p-1024", Chips: 512, Rows: 1, Model: 8, Layers: 64, Width: 16384, Heads: 128,
			Hidden: 57344, Remat: "products", TFLOPs: 308},
		{Row: 9, Name: "512B", Slice: "v5p-1024", Chips: 512, Rows: 2, Model: 8, Layers: 128, Width: 16384, Heads: 128,
			Hidden: 57344, Remat: "full", TFLOPs: 294},
		{Row: 10, Name: "1024B", Slice: "v5p-2048", Chips: 1024, Rows: 2, Model: 16, Layers: 128, Width: 16384, Heads: 256,
			Hidden: 114688, Remat: "full", TFLOPs: 254},
		{Row: 11, Name: "22B", Slice: "v4-128", Chips: 64, Rows: 13, Layers: 48, Width: 6144, Heads: 24, HeadSize: 256,
			Hidden: 24576, Remat: "full", TFLOPs: 156},
		{Row: 12, Name: "52B", Slice: "v4-384", Chips: 192, Rows: 7, Layers: 32, Width: 12288, Heads: 32, HeadSize: 256,
			Hidden: 49152, Remat: "full", TFLOPs: 154},
		{Row: 13, Name: "Llama3.1-8B", Slice: "v6e-8", Chips: 8, Rows: 3, Sequence: 8192, TFLOPs: 413.4, Lacks: offload},
		{Row: 15, Name: "Llama3.1-70B", Slice: "v6e-32", Chips: 32, Rows: 2, Sequence: 8192, TFLOPs: 443.4, Lacks: offload +
			"; variables in bfloat16"},
		{Row: 16, Name: "Llama3.1-70B", Slice: "v6e-256", Chips: 256, Rows: 5, Sequence: 8192, TFLOPs: 462.3, Lacks: offload +
			"; variables in bfloat16"},
		{Row: 17, Name: "Llama2-70B", Slice: "v6e-256", Chips: 256, Rows: 2, Sequence: 4096, TFLOPs: 402.3, Lacks: offload},
		{Row: 18, Name: "GPT-3 175B", Slice: "v6e-256", Chips: 256, Rows: 3, TFLOPs: 384.9, Lacks: other},
		{Row: 19, Name: "Mistral-7B", Slice: "v6e-8", Chips: 8, Rows: 6, Sequence: 8192, TFLOPs: 432, Lacks: offload},
		{Row: 20, Name: "Gemma3-12B", Slice: "v6e-256", Chips: 256, Rows: 1, Sequence: 32768, Lacks: other + "; " + offload},
	}
	for i := range all {
		s := &all[i]
		if s.Sequence == 0 {
			s.Sequence = 2048
		}
		if s.HeadSize == 0 {
			s.HeadSize = 128
		}
		s.KeyHeads, s.Vocabulary, s.Model = s.Heads, 32000, max(s.Model, 1)
		s.Source = "AI-Hypercomputer/maxtext, configs/tpu"
		if s.Row > 12 {
			s.Source = "AI-Hypercomputer/tpu-recipes, training/trillium"
		}
		if s.Lacks == "" {
			s.Differs = kernel
		}
		if s.Row == 11 || s.Row == 12 {
			s.Differs += matrix
		}
	}
	return all
}
