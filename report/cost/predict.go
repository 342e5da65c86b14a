package cost

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Prediction is the predicted time of one run of a program on its slice, by category. It does not
// include reading the input, the work of the hosts, launches, and waiting for other processes. It
// is not a measurement and, unlike the roofline, not a bound. docs/predicted-time.md compares it
// with published measurements.
type Prediction struct {
	// Seconds is the sum of Products, Memory and the exposed parts of Interconnect and Network.
	Seconds float64 `json:"seconds"`
	// Products is the time of the operations with matrix products and convolutions: the compiler's
	// estimate of cycles divided by the clock rate if there is one, and otherwise the padded
	// product at the share of the peak that compiled programs achieve.
	Products float64 `json:"products_seconds"`
	// Memory is the time of all other operations of a core, each at the rate of main memory.
	// Operations that access only fast memory have the compiler's estimate of cycles.
	Memory float64 `json:"memory_seconds"`
	// Interconnect is the time of the collectives inside slices, by kind, bytes, group and links.
	// Network is the time of the collectives between slices.
	Interconnect Overlap `json:"interconnect"`
	Network      Overlap `json:"network"`
	// Closed is the part of Products without an estimate of the compiler.
	Closed float64 `json:"products_without_cycles_seconds,omitempty"`
	// Utilization is the number of operations in the step's matrix products and convolutions as
	// written, divided by the operations that all cores can execute at their published peak in
	// Seconds. [Predict] leaves it 0, because a compiled program does not contain the step as
	// written.
	Utilization float64 `json:"model_flops_utilization,omitempty"`
	// Unknown are the operations without a known time, which count as zero, the most frequent
	// first.
	Unknown []UnknownTime `json:"unknown,omitempty"`
	// Constants are the chip properties that the prediction uses.
	Constants []Constant `json:"constants"`
}

// UnknownTime counts the operations of one kind that a [Prediction] omits because their time cannot
// be predicted.
type UnknownTime struct {
	Operation string `json:"operation"`
	// Count is the number of executions on one core in a step.
	Count int `json:"count"`
}

func (s *slice) prediction(t times) *Prediction {
	p := &Prediction{
		Seconds: t.seconds(), Products: t.products, Memory: t.memory, Interconnect: t.interconnect, Network: t.network,
		Closed: t.closed,
	}
	for _, operation := range slices.Sorted(maps.Keys(t.unknown)) {
		p.Unknown = append(p.Unknown, UnknownTime{strings.ToValidUTF8(operation, "\ufffd"),
			int(min(t.unknown[operation], maxCount))})
	}
	slices.SortStableFunc(p.Unknown, func(a, b UnknownTime) int { return cmp.Compare(b.Count, a.Count) })
	for _, name := range slices.Sorted(maps.Keys(s.constants)) {
		p.Constants = append(p.Constants, s.constants[name])
	}
	return p
}
