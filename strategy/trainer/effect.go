package trainer

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Loss returns the loss of a training step with a check that the flags -precision and -remat take
// effect. The step's trace fails with an error of kind ValueError if train.Options.Precision is not
// Precision, or if -remat is given and no [remat.Block] and no layer loop of the loss has a policy
// other than remat.Everything. A policy that reaches no operation is an error of the trace in any case.
func (f *Flags) Loss(loss train.Loss) train.Loss {
	if loss == nil {
		return nil
	}
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		want := f.Precision.Filled()
		if got := precision.Of(rc.Graph()); want != (precision.Policy{}) && got != want {
			panic(noEffect("-precision", "set train.Options.Precision to Flags.Precision", "the step computes with another policy (%s)", got))
		}
		l := loss(rc, in)
		if keep := f.Keep.Keep(); (keep.Some || keep.Host) && !remat.Applied(rc.Graph()) {
			panic(noEffect("-remat", "build the layers in remat.Block(flags.Keep, ...), or in a loop with loop.Options{Keep: flags.Keep}",
				"no operation of the model is in a block or a layer loop that computes values again"))
		}
		return l
	}
}

// noEffect returns an error for a flag that changes nothing.
func noEffect(flag, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "trainer:", Subject: "flag " + flag, Reason: "it has no effect, because " + fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}
