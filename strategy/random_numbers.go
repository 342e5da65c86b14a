package strategy

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// OwnRandomNumbers gives each replica random numbers of its own for the rest of the step: other
// dropout masks, other noise. Without it all replicas draw the same numbers, because the state of a
// store's generator is one mirrored variable. Call it before the first draw; a second call does
// nothing. It panics if the function has no store.
//
// The store's generator advances by one draw for the step, however many numbers a replica takes,
// and stays the same on all replicas. Each replica's generator is seeded by that draw and the
// replica id (Philox: other keys, other streams). The logical devices of a replica draw the same
// numbers.
func (rc *ReplicaContext) OwnRandomNumbers() {
	if rc.scope == nil {
		panic(noStore("OwnRandomNumbers"))
	}
	if rc.randomNext != nil || rc.strategy.replicas == 1 {
		return
	}
	v := rc.randomState()
	if v.ChangedInGraph(rc.graph) && !(rc.micro != nil && v.NodeValue(rc.graph) == rc.micro.random) {
		panic(fault.New(RuntimeError, "OwnRandomNumbers", "call it first", "random numbers were drawn before it"))
	}
	next, seed := graph.RNGStateSplit(v.NodeValue(rc.graph))
	id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Uint64)
	key := graph.Mul(graph.Const(rc.graph, []uint64{1, 0, 0}), id) // the first word is Philox's key
	v.SetNodeValue(graph.Add(seed, key))
	rc.randomNext = next
}

// settleRandom gives the store's generator the state after the step.
func (rc *ReplicaContext) settleRandom() {
	if rc.randomNext != nil {
		rc.randomState().SetNodeValue(rc.randomNext)
	}
}

// randomState is the variable that holds the state of the store's generator.
func (rc *ReplicaContext) randomState() *model.Variable {
	store := rc.scope.Store()
	path := model.JoinPath("/", model.RNGStateVariableName)
	if v := store.GetVariable(path); v != nil && v.HasValue() {
		return v
	}
	if err := store.ResetRNGState(); err != nil { // makes it
		panic(fault.Of("random state", err, ""))
	}
	return store.GetVariable(path)
}
