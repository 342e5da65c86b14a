package spmd

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// OwnRandomNumbers gives each replica random numbers of its own. state is the parameter that holds
// the state of a generator, the same on all replicas, and now is the value that the step leaves
// there. What the step has done with state so far it does from here on with the replica's own state:
// a seed that is drawn from state, with the replica's number added to the key of Philox. So a step
// need not say before it is traced whether it draws, and nothing is added to one that does not, nor
// to a program of one replica.
//
// OwnRandomNumbers returns what the step is to leave: state after that one draw, the same on all
// replicas, or now where it is not made of state, as in a step that sets it anew.
func OwnRandomNumbers(state, now *graph.Node) (*graph.Node, error) {
	t := traceOf("random numbers", state)
	if t.opts.Replicas == 1 {
		return now, nil
	}
	shared, err := t.value(state)
	if err != nil {
		return nil, err
	}
	drawn, err := t.varying([]*graph.Node{now}, []*graph.Node{state})
	if err != nil {
		return nil, err
	}
	g := state.Graph()
	id, end := ReplicaID(g), len(t.main().IR().Body)
	next, seed := graph.RNGStateSplit(state)
	key := graph.Const(g, []uint64{1, 0, 0}) // the first word
	own, err := t.value(graph.Add(seed, graph.Mul(key, graph.ConvertDType(id, dtypes.Uint64))))
	if err != nil {
		return nil, err
	}
	t.lead(end, shared, own)
	if !drawn[0] {
		return now, nil
	}
	return next, nil
}

// lead moves the statements from end on ahead of all others, which then read own in the place of
// shared.
func (t *Trace) lead(end int, shared, own *ir.Value) {
	f := t.main().IR()
	n := len(f.Body) - end
	f.Body = slices.Concat(f.Body[end:], f.Body[:end])
	for i, s := range f.Body[n:] {
		f.Body[n+i] = s.Reading(func(v *ir.Value) *ir.Value {
			if v == shared {
				return own
			}
			return v
		})
	}
	t.moved(func(i int) int { return i + n })
}
