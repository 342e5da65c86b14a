package spmd

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// Variant is a step traced for other sizes of its padded dimensions.
type Variant struct {
	Trace *Trace
	Graph *graph.Graph
	Sizes []int
}

// LeaveOutPadding rewrites the step of a graph that was compiled on t so that padding of its
// arguments has no effect, see package ragged. sizes are the padded sizes. sources contain the
// location of the real size for each padded size; a source without a parameter is the value of
// [RealRows]. others are the same step traced for other padded sizes: two traces for each size,
// which differ from t in that size only. LeaveOutPadding returns the dimensions of the step's
// results. Its errors are [*ragged.Error].
func (t *Trace) LeaveOutPadding(g *graph.Graph, sizes []int, sources []ragged.Source, others []Variant) ([][]ragged.Dim, error) {
	base, err := t.traced(g, sizes)
	if err != nil {
		return nil, err
	}
	var all []ragged.Variant
	for _, other := range others {
		traced, err := other.Trace.traced(other.Graph, other.Sizes)
		if err != nil {
			return nil, err
		}
		all = append(all, traced)
	}
	plan, err := ragged.Compare(base, all)
	if err != nil {
		return nil, err
	}
	results := plan.Results()
	at, err := plan.Apply(located(base.Program, sources))
	if err != nil {
		return nil, err
	}
	t.moved(func(i int) int { return at[i] })
	return results, nil
}

// moved records that the index of statement i of the step changed to to(i).
func (t *Trace) moved(to func(i int) int) {
	for i, r := range t.regions {
		t.regions[i].begin, t.regions[i].end = to(r.begin), to(r.end)
	}
	for i, p := range t.passes {
		t.passes[i].begin, t.passes[i].end = to(p.begin), to(p.end)
	}
}

func (t *Trace) traced(g *graph.Graph, sizes []int) (ragged.Variant, error) {
	lowered, ok := g.Executable().(*lowering.Executable)
	if !ok {
		return ragged.Variant{}, untraced(g.Name())
	}
	return ragged.Variant{Program: lowered.Program(), Sizes: sizes, Marker: padded}, nil
}

// padded returns the effect of a mark on a padded value, see [ragged.Marker].
func padded(mark any) string {
	switch m := mark.(type) {
	case reduced, gathered, scattered, amongMark:
		return "a collective"
	case entryMark:
		return cutting(m.pass, m.pass.In[m.index])
	case exitMark:
		return cutting(m.pass, m.pass.Out[m.index])
	}
	return ""
}

// cutting describes a border that splits a tensor over devices, in which case the last devices
// would have the padding.
func cutting(p *region.Pass, c region.Crossing) string {
	if _, manual := p.Kind.(region.Manual); manual && len(axesOf(c)) > 0 {
		return "a manual region"
	}
	return ""
}
