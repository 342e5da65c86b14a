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

// parameter calls the functions of Ask for a parameter of the step, the last one first.
func (t *Trace) parameter(name string, _ shapes.Shape) error {
	for _, ask := range slices.Backward(t.asks) {
		if err := ask(name); err != nil {
			return err
		}
	}
	return nil
}
