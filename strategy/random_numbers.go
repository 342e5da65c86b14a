package strategy

import (
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// ownRandomNumbers makes what the step drew from the store's generator the replica's own. It is
// called when the step function has returned, of a function with a store.
func (rc *ReplicaContext) ownRandomNumbers() error {
	v := rc.scope.Store().GetVariable(statePath)
	if v == nil || !v.ChangedInGraph(rc.graph) {
		return nil
	}
	next, err := module.OwnRandomNumbers(rc.graph.GetParameterByName(statePath), v.NodeValue(rc.graph))
	if err != nil {
		return fault.Of("random numbers", err, "")
	}
	v.SetNodeValue(next)
	return nil
}
