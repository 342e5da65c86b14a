package trainer

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
)

// shows is a hook that says, after the first step, what runs where: above the bar, as a table of the
// variables that are trained. With several processes the first one says it.
func (f *Flags) shows(store *model.Store, c Classifier, batch int) fit.Hook {
	shown := false
	return fit.Hook{Name: "what runs where", Record: func(_ context.Context, s *fit.State) error {
		if shown || !s.First() {
			return nil
		}
		shown = true
		strat := s.Strategy()
		replicas := strat.NumReplicasInSync()
		out := tabwriter.NewWriter(f.line, 0, 0, 2, ' ', 0)
		row := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
		row("data\t%s of %s to train on, %s to test with", c.Training.Info().Cardinality, c.Training.Info().Spec, c.Test.Info().Cardinality)
		row("mesh\treplica=%d,logical=%d of %d %s devices", replicas, strat.NumLogicalDevices(), strat.System().Topology().NumDevices(), strat.System().Platform())
		row("batch\t%d, %d a replica; up to %d steps", batch, batch/replicas, s.Steps())
		row("\nvariable\tshape\tover a replica's devices\tbytes\tbytes/device")
		bytes, each := 0, 0
		for _, v := range strat.Variables(store).All() {
			bytes, each = bytes+int(v.Shape().ByteSize()), each+v.BytesPerDevice()
			if v.Trainable() {
				row("%s\t%s\t%s\t%d\t%d", v.Path(), v.Shape(), placement(v), v.Shape().ByteSize(), v.BytesPerDevice())
			}
		}
		row("with the optimizer's\t\t\t%d\t%d", bytes, each)
		return out.Flush()
	}}
}

// placement says how a variable lies on a replica's devices.
func placement(v *strategy.Variable) string {
	if text := v.Annotation().String(); text != "none" {
		return text
	}
	return "whole"
}
