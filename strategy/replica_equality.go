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

// equalizeWrites makes the new values of a store's variables equal on all replicas, because the
// compiled program relies on this. values are the new values of the changed variables. If a value
// differs between replicas, the variable must have a float dtype and must not be trainable. The
// value is then averaged over the replicas, weighted by the number of rows of each replica.
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

// separateRandomNumbers makes each replica generate different random numbers in the step. If the
// function has a store, call separateRandomNumbers after the step function has returned.
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
// true, it assumes that per-replica arguments differ; otherwise it assumes that they are equal.
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

// resultEquality records whether a result of a step is equal on all replicas, always or if the
// arguments are equal.
type resultEquality struct {
	always           bool // for all arguments, such as the result of a collective
	ifArgumentsEqual bool // if the arguments are equal on all replicas
}

// findEqualResults determines by data-flow analysis which results of the step are equal on all
// replicas. It does nothing for a padded step, because the actual sizes of its results may differ.
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

// checkRepeats checks a step for which internalFunction.SetMaxIterations was called. It returns an
// error if the step's first result may differ between replicas, or if the step is called with a
// batch of several steps.
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
