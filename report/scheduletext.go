package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// What bounds the values and the layers of the text form; JSON has more.
const textValues, textLayers = 8, 12

// text writes what is in memory at the peak, and the times of layers; nothing without a schedule.
func (s *Schedule) text(b *strings.Builder) {
	if s == nil {
		return
	}
	fmt.Fprintf(b, "\nmemory over the schedule, derived from the program\n  at its peak %s is in use, %s\n", Bytes(s.Peak), s.During())
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  role\tof\ton one core\tbytes\tcount")
	all := s.AtPeak()
	for _, v := range all[:min(len(all), textValues)] {
		fmt.Fprintf(t, "  %s\t%s\t%s%v\t%s\t%d\n", v.Role, v.Of, v.DType, v.Shape, Bytes(v.Bytes), v.Count)
	}
	// A strings.Builder takes everything.
	_ = t.Flush()
	if n := len(all) - textValues; n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
	rows := s.byLayer()
	if len(rows) == 0 {
		return
	}
	b.WriteString("\npredicted time by layer\n")
	t = tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  layer\ttime\tproducts\tmemory\tinterconnect\tnetwork")
	for _, row := range rows[:min(len(rows), textLayers)] {
		fmt.Fprintf(t, "  %s\t%s", cmp.Or(row.Layer, "not known"), Seconds(row.Seconds))
		for _, p := range row.Parts {
			fmt.Fprintf(t, "\t%s", map[bool]string{true: Seconds(p.Seconds), false: "-"}[p.Seconds > 0])
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
	if n := len(rows) - textLayers; n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
}

// During says when the peak is, such as "during fusion.7".
func (s *Schedule) During() string {
	if o := numbered(s.Operations, s.PeakAt); o != nil {
		return "during " + cmp.Or(o.Name, fmt.Sprintf("%d operations", o.Joined))
	}
	return "at an operation that is not known"
}

// numbered is the operation of a number; nil without one.
func numbered(all []Operation, number int) *Operation {
	for k := range all {
		if all[k].Number == number {
			return &all[k]
		}
		if o := numbered(all[k].Inside, number); o != nil {
			return o
		}
	}
	return nil
}

// layerRow is the times of a layer by what takes them.
type layerRow struct {
	Layer   string
	Seconds float64
	Parts   []LayerTime // of all kinds, in order
}

var timeKinds = []string{"products", "memory", "interconnect", "network"}

// byLayer are the layers, longest first.
func (s *Schedule) byLayer() (rows []layerRow) {
	at := map[string]int{}
	for _, x := range s.Layers {
		n, known := at[x.Layer]
		if !known {
			n = len(rows)
			at[x.Layer] = n
			row := layerRow{Layer: x.Layer}
			for _, kind := range timeKinds {
				row.Parts = append(row.Parts, LayerTime{x.Layer, kind, 0})
			}
			rows = append(rows, row)
		}
		rows[n].Seconds += x.Seconds
		if k := slices.Index(timeKinds, x.Kind); k >= 0 {
			rows[n].Parts[k].Seconds += x.Seconds
		}
	}
	slices.SortStableFunc(rows, func(a, b layerRow) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return rows
}
