package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Prediction is the predicted time of one run of a program on its slice, by category. The
// prediction includes the program, the chips and the links. It does not include input, hosts,
// launches and waiting for other processes. It was compared with published measurements of single
// operations; see docs/predicted-time.md. It is not a measurement and, unlike the roofline, not a
// bound.
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

// UnknownTime counts the operations of one kind whose time cannot be predicted. The prediction omits
// them.
type UnknownTime struct {
	Operation string `json:"operation"`
	// Count is the number of executions on one core in a step.
	Count int `json:"count"`
}

// Predict returns the predicted time of a program on the slice with the name target, such as
// "v5p:4x4x4" or "2x v6e-256". program is an optimized program, or a program that is partitioned
// and not yet scheduled. The operations of kernels are predicted as kernels. Predict needs no
// client and no plugin. Its errors match [ErrProgram] for a program that cannot be read, and
// errors.ErrUnsupported for other program formats and for devices that are not TPUs.
func Predict(program pjrt.Program, target string, kernels ...Kernel) (*Prediction, error) {
	m, err := parseProgram(program)
	if err != nil {
		return nil, err
	}
	for _, k := range kernels {
		k.keep(m)
	}
	slice, ok := newMachine(target)
	if !ok {
		return nil, notTPU(target)
	}
	w := m.work(Target{}, false, slice)
	if w.cut {
		return nil, &errkind.Fault{Op: "report: predict", Match: ErrProgram, Reason: "it is too large to be counted to its end"}
	}
	return slice.prediction(w.times), nil
}

// prediction converts the times to a Prediction.
func (m *machine) prediction(t times) *Prediction {
	p := &Prediction{
		Seconds: t.seconds(), Products: t.products, Memory: t.memory, Interconnect: t.interconnect, Network: t.network, Closed: t.closed,
	}
	for _, what := range slices.Sorted(maps.Keys(t.unknown)) {
		p.Unknown = append(p.Unknown, UnknownTime{strings.ToValidUTF8(what, "\ufffd"), int(min(t.unknown[what], maxRounds))})
	}
	slices.SortStableFunc(p.Unknown, func(a, b UnknownTime) int { return cmp.Compare(b.Count, a.Count) })
	for _, name := range slices.Sorted(maps.Keys(m.constants)) {
		p.Constants = append(p.Constants, m.constants[name])
	}
	return p
}

// timePart is a part of a predicted time.
type timePart struct {
	Name    string
	Seconds float64
	Note    string
}

// parts returns the parts of the prediction's time, without empty parts.
func (p *Prediction) parts() []timePart {
	parts := []timePart{{"products", p.Products, ""}, {"memory", p.Memory, ""}}
	if p.Closed > 0 {
		parts[0].Note = fmt.Sprintf(", of which %s without the compiler's cycles", units.Seconds(p.Closed))
	}
	for _, x := range []struct {
		name string
		Overlap
	}{{"waits for collectives", p.Interconnect}, {"waits for other slices", p.Network}} {
		note := ""
		if x.Hidden > 0 {
			note = fmt.Sprintf(", and %s more behind other operations", units.Seconds(x.Hidden))
		}
		if x.Overlap != (Overlap{}) {
			parts = append(parts, timePart{x.name, x.Exposed, note})
		}
	}
	return parts
}

// uncertain returns the constants that are neither published nor from the compiler.
func (p *Prediction) uncertain() (list []Constant) {
	for _, c := range p.Constants {
		if c.Basis == fitted || c.Basis == assumed {
			list = append(list, c)
		}
	}
	return list
}
