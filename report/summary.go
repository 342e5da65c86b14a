package report

// Summary contains the figures of a report for comparisons between models, slices and versions. It
// is plain data. The names of its JSON fields are stable.
type Summary struct {
	// Parameters is the number of elements of the trainable variables.
	Parameters int64 `json:"parameters"`
	// TextBytes is the size of the step's StableHLO text.
	TextBytes int `json:"text_bytes"`
	// LowerSeconds is the duration of tracing and lowering the step. CompileSeconds is the duration
	// of the compilation.
	LowerSeconds   float64 `json:"lower_seconds"`
	CompileSeconds float64 `json:"compile_seconds"`
	// Memory is the memory of one core, by kind, in bytes.
	Memory Memory `json:"memory"`
	// Collectives are the collectives that one core starts in a step, the most bytes first.
	Collectives []SummaryCollective `json:"collectives"`
	// FLOPs is the number of operations of one core in a step. It is negative if the compiler
	// provides no cost analysis. See [Cost].
	FLOPs float64 `json:"flops"`
	// PredictedSeconds is the predicted time of a step, or 0 without a prediction. See
	// [cost.Prediction].
	PredictedSeconds float64 `json:"predicted_seconds,omitempty"`
}

// SummaryCollective contains the total of the collectives of one kind over one axis with operands
// of one dtype. A collective with operands of several dtypes counts for each of these dtypes.
type SummaryCollective struct {
	// Axis and Kind are as in [Collective], and DType is as in [CollectiveDType].
	Axis  string `json:"axis"`
	Kind  string `json:"kind"`
	DType string `json:"dtype"`
	// Count is the number of these collectives. Bytes is the size of their operands on one core.
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Summary returns the figures of a report for comparisons. Collectives with different group sizes
// are summed.
func (r *Report) Summary() Summary {
	s := Summary{
		Parameters: r.Parameters, TextBytes: r.TextBytes, LowerSeconds: r.LoweringSeconds, CompileSeconds: r.CompilingSeconds,
		Memory: r.Memory, Collectives: []SummaryCollective{}, FLOPs: r.Cost.FLOPs,
	}
	if r.Predicted != nil {
		s.PredictedSeconds = r.Predicted.Seconds
	}
	for _, c := range r.CollectiveDTypes {
		s.Collectives = append(s.Collectives, SummaryCollective{c.Axis, c.Kind, c.DType, c.Count, c.Bytes})
	}
	s.Collectives = groupBy(s.Collectives, func(c SummaryCollective) [3]string {
		return [3]string{c.Axis, c.Kind,
			c.DType}
	}, func(first *SummaryCollective, next SummaryCollective) {
		first.Count += next.Count
		first.Bytes += next.Bytes
	})
	return s
}
