package strategy

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/initialization"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// equalizeWrites makes the step's writes to a store's variables equal on all replicas, as the
// compiler assumes. values are the new values of the changed variables. A value that differs
// between replicas is averaged over the replicas, weighted by their rows, if the variable has a
// float dtype and is not trainable. Otherwise it is an error.
func (t *trace) equalizeWrites(changed []*model.Variable, values []*graph.Node) error {
	varying, err := t.rc.varyingNodes(values, true)
	if err != nil {
		return err
	}
	for i, v := range changed {
		switch {
		case !varying[i], !values[i].Shape().Equal(v.Shape()): // a shard of it
		case !v.Trainable && v.DType().IsFloat():
			values[i] = t.rc.meanState(values[i])
		default:
			return fault.New(errkind.ValueError, fmt.Sprintf("write of variable %q", v.Path()),
				"AllReduce what is written, give it to a NewVariable that is OnRead, or set MirroredRandomNumbers where random "+
					"numbers make the difference",
				"a replica writes a value of its own to a variable that all share")
		}
	}
	return nil
}

// separateRandomNumbers makes the random numbers of the step different on each replica. It must be
// called after the step function has returned, if the function has a store.
func (t *trace) separateRandomNumbers() error {
	v := t.rc.state.Scope.Store().GetVariable(initialization.StatePath)
	if v == nil || !v.ChangedInGraph(t.graph) {
		return nil
	}
	next, err := spmd.PerReplicaRandomNumbers(t.graph.GetParameterByName(initialization.StatePath), v.NodeValue(t.graph))
	if err != nil {
		return fault.Wrap("random numbers", err, "")
	}
	v.SetNodeValue(next)
	return nil
}

// varyingNodes reports for each node whether its value may differ between replicas. If arguments is
// true, the per-replica arguments count as different.
func (rc *ReplicaContext) varyingNodes(nodes []*graph.Node, arguments bool) ([]bool, error) {
	var parameters []*graph.Node
	for i, v := range rc.values {
		if arguments && v.base().perReplica {
			parameters = append(parameters, rc.parameters[i])
		}
	}
	for _, c := range rc.captured {
		if c.variable.perReplica() && !c.borrowed {
			parameters = append(parameters, rc.graph.GetParameterByName(c.name))
		}
	}
	varying, err := spmd.ReplicaVarying(nodes, append(parameters, rc.state.ShardParameters...))
	if err != nil {
		return nil, fault.Wrap("comparing the replicas", err, "")
	}
	return varying, nil
}

// resultEquality reports whether a result of a step is equal on all replicas.
type resultEquality struct {
	always           bool // for all arguments, such as the result of a collective
	ifArgumentsEqual bool // if the arguments are equal on all replicas
}

// findEqualResults finds the results of the step that are equal on all replicas, by data flow. It
// skips a padded step, whose results may have different actual sizes.
func (t *trace) findEqualResults() error {
	if t.f.opts.mirroredResults || len(t.padding.sizes) > 0 || t.numResults == 0 {
		return nil
	}
	own := t.outputs[:t.numResults]
	varying, err := t.rc.varyingNodes(own, true)
	if err != nil {
		return err
	}
	made, err := t.rc.varyingNodes(own, false)
	if err != nil {
		return err
	}
	t.equalResults = make([]resultEquality, t.numResults)
	for i := range own {
		t.equalResults[i] = resultEquality{always: !varying[i], ifArgumentsEqual: !made[i]}
	}
	return nil
}

// checkRepeats returns an error for a step with internalFunction.SetMaxIterations if its first
// result may differ between replicas, or if it is called with a batch of several steps.
func (t *trace) checkRepeats(steps int) error {
	if steps > 0 {
		return fault.New(errkind.ValueError, "run", "give it one batch",
			"it says itself how often it runs, and its batches are for %d steps", steps)
	}
	if t.numResults == 0 || !t.equalResults[0].always {
		return fault.New(errkind.ValueError, "result 0", "reduce it over the replicas",
			"it says whether the step runs again, and may differ between replicas")
	}
	return nil
}
