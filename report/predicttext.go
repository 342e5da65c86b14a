package report

import (
	"fmt"
	"strings"
)

// text writes the prediction for people; nothing without one.
func (p *Prediction) text(b *strings.Builder) {
	if p == nil {
		return
	}
	b.WriteString("\nprediction of one step, not a measurement\n")
	for _, part := range p.parts() {
		fmt.Fprintf(b, "  %-23s %s%s\n", part.Name, Seconds(part.Seconds), part.Note)
	}
	fmt.Fprintf(b, "  %-23s %s\n", "together", Seconds(p.Seconds))
	if p.Utilization > 0 {
		fmt.Fprintf(b, "  %-23s %.2f%% of the published peak, by that prediction\n", "utilization", 100*p.Utilization)
	}
	for i, x := range p.Unknown {
		fmt.Fprintf(b, "  %-23s %d x %s, counted as no time\n", map[bool]string{true: "not known"}[i == 0], x.Count, x.Operation)
	}
	for i, c := range p.uncertain() {
		fmt.Fprintf(b, "  %-23s %s: %.4g, %s\n", map[bool]string{true: "rests on"}[i == 0], c.Name, c.Value, c.Basis)
	}
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
