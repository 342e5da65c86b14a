package strategy

import (
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/first"
)

// ownRandomNumbers makes what the step drew from the store's generator the replica's own. It is
// called when the step function has returned, of a function with a store.
func (t *trace) ownRandomNumbers() error {
	v := t.rc.scope.Store().GetVariable(first.StatePath)
	if v == nil || !v.ChangedInGraph(t.graph) {
		return nil
	}
	next, err := spmd.OwnRandomNumbers(t.graph.GetParameterByName(first.StatePath), v.NodeValue(t.graph))
	if err != nil {
		return fault.Of("random numbers", err, "")
	}
	v.SetNodeValue(next)
	return nil
}
