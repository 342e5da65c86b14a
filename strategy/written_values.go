package strategy

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// settle makes what the step writes to a store's variables equal on all replicas, which the
// compiler takes for granted. values are the new values of the changed variables. A layer's own
// averages, such as those of a batch normalisation, are averaged over the replicas, by their rows;
// any other value that may differ is an error.
func (t *trace) settle(changed []*model.Variable, values []*graph.Node) error {
	differs, err := t.rc.differs(values, true)
	if err != nil {
		return err
	}
	for i, v := range changed {
		switch {
		case !differs[i], !values[i].Shape().Equal(v.Shape()): // a part of it
		case !v.Trainable && v.DType().IsFloat():
			values[i] = t.rc.meanOfStates(values[i])
		default:
			return fault.New(ValueError, fmt.Sprintf("write of variable %q", v.Path()),
				"AllReduce what is written, give it to a NewVariable that is OnRead, or set MirroredRandomNumbers where random numbers make the difference",
				"a replica writes a value of its own to a variable that all share")
		}
	}
	return nil
}

// differs says which nodes of the step may differ between replicas. arguments says that those of
// its arguments that are not mirrored do.
func (rc *ReplicaContext) differs(nodes []*graph.Node, arguments bool) ([]bool, error) {
	var differing []*graph.Node
	for i, v := range rc.values {
		if arguments && v.base().perReplica {
			differing = append(differing, rc.parameters[i])
		}
	}
	for _, c := range rc.captured {
		if c.variable.perReplica() && !c.borrowed {
			differing = append(differing, rc.graph.GetParameterByName(c.name))
		}
	}
	differs, err := spmd.Differs(nodes, append(differing, rc.rawParts...))
	if err != nil {
		return nil, fault.Of("comparing the replicas", err, "")
	}
	return differs, nil
}
