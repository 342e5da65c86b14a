package spmd

import (
	"slices"

	"github.com/gomlx/compute/shapes"
)

// Ask implements [region.Target].
func (t *Trace) Ask(ask func(name string) error) (done func()) {
	t.asks = append(t.asks, ask)
	n := len(t.asks)
	return func() { t.asks = t.asks[:n-1] }
}

// parameter is asked for each parameter of the step.
func (t *Trace) parameter(name string, _ shapes.Shape) error {
	for _, ask := range slices.Backward(t.asks) {
		if err := ask(name); err != nil {
			return err
		}
	}
	return nil
}
