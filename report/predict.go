package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Prediction is the time that one run of a program should take on its slice, by what takes it. It
// knows the program, the chips and the links, and nothing of input, hosts, launches and waiting for
// other processes. It has been held against published measurements of single operations; see
// docs/predicted-time.md. It is no measurement and, unlike the roofline, no bound.
type Prediction struct {
	// Seconds is the sum of Products, Memory and the exposed parts of Interconnect and Network.
	Seconds float64 `json:"seconds"`
	// Products are the operations with matrix products and convolutions: the compiler's estimate of
	// cycles over the clock where there is one, and otherwise the padded product at the share of the
	// peak that compiled programs show.
	Products float64 `json:"products_seconds"`
	// Memory are all other operations of a core, each at the rate of the main memory. Those that touch
	// fast memory alone take the compiler's cycles.
	Memory float64 `json:"memory_seconds"`
	// Interconnect are the collectives inside slices, by kind, bytes, group and links, and Network
	// those between slices.
	Interconnect Overlap `json:"interconnect"`
	Network      Overlap `json:"network"`
	// Closed is the part of Products whose operations have no cycles of the compiler.
	Closed float64 `json:"products_without_cycles_seconds,omitempty"`
	// Utilization is the number of operations in the step's matrix products and convolutions as it was
	// written, divided by what all cores can do at their published peak in Seconds. [Predict] leaves it
	// 0, as a program does not say what was written.
	Utilization float64 `json:"model_flops_utilization,omitempty"`
	// Unknown are the operations whose time is not known and that count as none, most frequent first.
	Unknown []UnknownTime `json:"unknown,omitempty"`
	// Constants are the figures that the prediction rests on.
	Constants []Constant `json:"constants"`
}

// UnknownTime is operations of one sort that a prediction has no time for.
type UnknownTime struct {
	Operation string `json:"operation"`
	// Count is how often one core runs them in a step.
	Count int `json:"count"`
}

// Predict returns the time of a program on the slice that target names, such as "v5p:4x4x4" or
// "2x v6e-256". The program is one that the compiler has finished, or one that it has split and not
// yet scheduled. Predict needs no client and no plugin. Errors match [ErrProgram] for a program that
// cannot be read, and errors.ErrUnsupported for another form of program and for devices that are no
// TPUs. Operations of kernels are predicted as these would run them.
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

// prediction turns the times into what people read.
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

// parts are what the prediction's time is made of; what a step has none of is left out.
func (p *Prediction) parts() []timePart {
	parts := []timePart{{"products", p.Products, ""}, {"memory", p.Memory, ""}}
	if p.Closed > 0 {
		parts[0].Note = fmt.Sprintf(", of which %s without the compiler's cycles", Seconds(p.Closed))
	}
	for _, x := range []struct {
		name string
		Overlap
	}{{"waits for collectives", p.Interconnect}, {"waits for other slices", p.Network}} {
		note := ""
		if x.Hidden > 0 {
			note = fmt.Sprintf(", and %s more behind other operations", Seconds(x.Hidden))
		}
		if x.Overlap != (Overlap{}) {
			parts = append(parts, timePart{x.name, x.Exposed, note})
		}
	}
	return parts
}

// uncertain are the constants that are neither published nor the compiler's.
func (p *Prediction) uncertain() (list []Constant) {
	for _, c := range p.Constants {
		if c.Basis == fitted || c.Basis == assumed {
			list = append(list, c)
		}
	}
	return list
}
