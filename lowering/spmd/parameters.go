package spmd

import (
	"slices"

	"github.com/gomlx/compute/shapes"
)

// InterceptParameters implements [region.Target].
func (t *Trace) InterceptParameters(check func(name string) error) (stop func()) {
	t.parameterChecks = append(t.parameterChecks, check)
	n := len(t.parameterChecks)
	return func() { t.parameterChecks = t.parameterChecks[:n-1] }
}

// checkParameter calls the functions that were passed to InterceptParameters with a new parameter,
// the last function first. It returns the first error.
func (t *Trace) checkParameter(name string, _ shapes.Shape) error {
	for _, check := range slices.Backward(t.parameterChecks) {
		if err := check(name); err != nil {
			return err
		}
	}
	return nil
}
