package spmd

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// Variant is a step that was traced for other sizes of its padded dimensions.
type Variant struct {
	Trace *Trace
	Graph *graph.Graph
	Sizes []int
}

// MaskPadding rewrites the step of graph g, which was compiled on t, so that padding in its
// arguments has no effect; see package ragged. sizes contains the padded sizes, and sources the
// source of each real size. A source without a parameter reads the value of [MarkRealRows]. others
// contains two traces of the step for each size, which differ from t in that size only. MaskPadding
// returns the dimensions of the step's results. Its errors are of type [*ragged.Error].
func (t *Trace) MaskPadding(g *graph.Graph, sizes []int, sources []ragged.SizeSource,
	others []Variant) ([][]ragged.Dim, error) {
	base, err := t.variantOf(g, sizes)
	if err != nil {
		return nil, err
	}
	var all []ragged.Variant
	for _, other := range others {
		traced, err := other.Trace.variantOf(other.Graph, other.Sizes)
		if err != nil {
			return nil, err
		}
		all = append(all, traced)
	}
	plan, err := ragged.Compare(base, all)
	if err != nil {
		return nil, err
	}
	results := plan.ResultDims()
	at, err := plan.Apply(setRealRowsSource(base.Program, sources))
	if err != nil {
		return nil, err
	}
	t.updateIndices(func(i int) int { return at[i] })
	return results, nil
}

func (t *Trace) updateIndices(newIndex func(i int) int) {
	for i, r := range t.regions {
		t.regions[i].begin, t.regions[i].end = newIndex(r.begin), newIndex(r.end)
	}
	for i, p := range t.passes {
		t.passes[i].begin, t.passes[i].end = newIndex(p.begin), newIndex(p.end)
	}
}

func (t *Trace) variantOf(g *graph.Graph, sizes []int) (ragged.Variant, error) {
	lowered, ok := g.Executable().(*lowering.Executable)
	if !ok {
		return ragged.Variant{}, untracedGraphError(g.Name())
	}
	return ragged.Variant{Program: lowered.Program(), Sizes: sizes, PlaceholderEffect: paddingEffect}, nil
}

func paddingEffect(placeholder any) string {
	switch m := placeholder.(type) {
	case collectivePlaceholder:
		return "a collective"
	case argumentPlaceholder:
		return splitEffect(m.pass, m.pass.In[m.index])
	case resultPlaceholder:
		return splitEffect(m.pass, m.pass.Out[m.index])
	}
	return ""
}

// splitEffect checks whether a region supports padding. It returns "a manual region" if mapping
// splits a tensor over devices, because then only the last devices would have padding. Otherwise it
// returns "".
func splitEffect(p *region.Pass, mapping region.Mapping) string {
	if _, manual := p.Kind.(region.Manual); manual && len(shardAxes(mapping)) > 0 {
		return "a manual region"
	}
	return ""
}
