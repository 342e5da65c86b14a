package spmd

import (
	"slices"

	"github.com/gomlx/compute/shapes"
)

// InterceptParameters implements [region.Target].
func (t *Trace) InterceptParameters(ask func(name string) error) (done func()) {
	t.parameterChecks = append(t.parameterChecks, ask)
	n := len(t.parameterChecks)
	return func() { t.parameterChecks = t.parameterChecks[:n-1] }
}

// checkParameter calls the functions of Ask for a parameter of the step, the last one first.
func (t *Trace) checkParameter(name string, _ shapes.Shape) error {
	for _, ask := range slices.Backward(t.parameterChecks) {
		if err := ask(name); err != nil {
			return err
		}
	}
	return nil
}
