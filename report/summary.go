package report

// Summary holds the figures of a report that one compares between models, slices and versions. It
// is plain data; the names of its JSON form do not change.
type Summary struct {
	// Parameters is the number of elements of the trainable variables.
	Parameters int64 `json:"parameters"`
	// TextBytes is the size of the step's StableHLO text.
	TextBytes int `json:"text_bytes"`
	// LowerSeconds is the time that tracing and lowering the step took, and CompileSeconds that of
	// the compiler.
	LowerSeconds   float64 `json:"lower_seconds"`
	CompileSeconds float64 `json:"compile_seconds"`
	// Memory is the memory of one core, by kind, in bytes.
	Memory Memory `json:"memory"`
	// Collectives are those that one core starts in a step, most bytes first.
	Collectives []SummaryCollective `json:"collectives"`
	// FLOPs is the number of operations of one core in a step; negative if the compiler gives no
	// account. See [Cost].
	FLOPs float64 `json:"flops"`
	// PredictedSeconds is the predicted time of a step; 0 if none is predicted. See [Prediction].
	PredictedSeconds float64 `json:"predicted_seconds,omitempty"`
}

// SummaryCollective sums up the collectives of one kind over one axis whose operands are of one
// dtype. A collective of operands of several dtypes counts in each.
type SummaryCollective struct {
	// Axis and Kind are those of [Collective], and DType that of [CollectiveDType].
	Axis  string `json:"axis"`
	Kind  string `json:"kind"`
	DType string `json:"dtype"`
	// Count is the number of these collectives, and Bytes the size of their operands on one core.
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Summary returns the figures of a report that one compares. Collectives of groups of several sizes
// are added up.
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
	s.Collectives = together(s.Collectives, func(c SummaryCollective) [3]string { return [3]string{c.Axis, c.Kind, c.DType} }, func(first *SummaryCollective, next SummaryCollective) {
		first.Count += next.Count
		first.Bytes += next.Bytes
	})
	return s
}
