package strategy

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/first"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// settle makes what the step writes to a store's variables equal on all replicas, which the
// compiler takes for granted. values are the new values of the changed variables. A layer's own
// averages, such as those of a batch normalisation, are averaged over the replicas, by their rows;
// any other value that may differ is an error.
func (t *trace) settle(changed []*model.Variable, values []*graph.Node) error {
	varying, err := t.rc.varying(values, true)
	if err != nil {
		return err
	}
	for i, v := range changed {
		switch {
		case !varying[i], !values[i].Shape().Equal(v.Shape()): // a part of it
		case !v.Trainable && v.DType().IsFloat():
			values[i] = t.rc.meanOfStates(values[i])
		default:
			return fault.New(errkind.ValueError, fmt.Sprintf("write of variable %q", v.Path()),
				"AllReduce what is written, give it to a NewVariable that is OnRead, or set MirroredRandomNumbers where random numbers make the difference",
				"a replica writes a value of its own to a variable that all share")
		}
	}
	return nil
}

// ownRandomNumbers makes what the step drew from the store's generator the replica's own. It is
// called when the step function has returned, of a function with a store.
func (t *trace) ownRandomNumbers() error {
	v := t.rc.state.Scope.Store().GetVariable(first.StatePath)
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

// varying says which nodes of the step are replica-varying: they may differ between replicas.
// arguments says that those of its arguments that are not mirrored do.
func (rc *ReplicaContext) varying(nodes []*graph.Node, arguments bool) ([]bool, error) {
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
	varying, err := spmd.Varying(nodes, append(parameters, rc.state.PartParameters...))
	if err != nil {
		return nil, fault.Of("comparing the replicas", err, "")
	}
	return varying, nil
}

// invariance says whether a result of a step is the same on all replicas.
type invariance struct {
	always bool // whatever its arguments are: what a collective gave, say
	given  bool // if its arguments are
}

// compareReplicas finds which of the step's own results are the same on all replicas, by what they
// are made of. A padded step's are not looked at: the replicas' results may be cut to different
// sizes.
func (t *trace) compareReplicas() error {
	if t.f.opts.mirroredResults || len(t.padding.sizes) > 0 || t.own == 0 {
		return nil
	}
	own := t.outputs[:t.own]
	varying, err := t.rc.varying(own, true)
	if err != nil {
		return err
	}
	made, err := t.rc.varying(own, false)
	if err != nil {
		return err
	}
	t.invariant = make([]invariance, t.own)
	for i := range own {
		t.invariant[i] = invariance{always: !varying[i], given: !made[i]}
	}
	return nil
}

// checkRepeats refuses a step whose replicas may disagree whether to go on, and one that runs on
// batches of several steps.
func (t *trace) checkRepeats(steps int) error {
	if steps > 0 {
		return fault.New(errkind.ValueError, "run", "give it one batch", "it says itself how often it runs, and its batches are for %d steps", steps)
	}
	if t.own == 0 || !t.invariant[0].always {
		return fault.New(errkind.ValueError, "result 0", "reduce it over the replicas", "it says whether the step runs again, and may differ between replicas")
	}
	return nil
}
