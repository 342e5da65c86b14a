package spmd

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// PerReplicaRandomNumbers makes the random numbers of each replica different. state is the
// parameter with the generator state, which is the same on all replicas, and current is its value
// at the end of the step. All previous ops of the step that read state read a seed instead, which
// is drawn from state and has the replica id added to its key. With one replica the step does not
// change.
//
// PerReplicaRandomNumbers returns the new state for the step to store, which is the same on all
// replicas: state after one draw, or current if it does not depend on state, for example in a step
// that sets the state.
func PerReplicaRandomNumbers(state, current *graph.Node) (*graph.Node, error) {
	t := requireTrace("random numbers", state)
	if t.opts.Replicas == 1 {
		return current, nil
	}
	shared, err := t.nodeValue(state)
	if err != nil {
		return nil, err
	}
	drawn, err := t.replicaVarying([]*graph.Node{current}, []*graph.Node{state})
	if err != nil {
		return nil, err
	}
	g := state.Graph()
	id, end := ReplicaID(g), len(t.stepFunction().IR().Body)
	next, seed := graph.RNGStateSplit(state)
	key := graph.Const(g, []uint64{1, 0, 0}) // the first word
	own, err := t.nodeValue(graph.Add(seed, graph.Mul(key, graph.ConvertDType(id, dtypes.Uint64))))
	if err != nil {
		return nil, err
	}
	t.moveToStart(end, shared, own)
	if !drawn[0] {
		return current, nil
	}
	return next, nil
}

// moveToStart moves the last statements of the step, from index end, to its start. It replaces
// shared by own in the operands of the other statements.
func (t *Trace) moveToStart(end int, shared, own *ir.Value) {
	f := t.stepFunction().IR()
	n := len(f.Body) - end
	f.Body = slices.Concat(f.Body[end:], f.Body[:end])
	for i, s := range f.Body[n:] {
		f.Body[n+i] = s.ReplaceOperands(func(v *ir.Value) *ir.Value {
			if v == shared {
				return own
			}
			return v
		})
	}
	t.updateIndices(func(i int) int { return i + n })
}
