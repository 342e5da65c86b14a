package replay

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Devices copies what the devices hold, and puts it back.
type Devices struct{ machine }

// On returns the devices of a strategy.
func On(s *strategy.TPUStrategy) Devices { return Devices{inside.Of[machine](s)} }

// Images copies what this process's devices hold of the variables.
func (d Devices) Images(ctx context.Context, of []*strategy.Variable) ([][][]byte, error) {
	return (&replay{machine: d.machine, variables: of}).images(ctx)
}

// Reinstate gives the devices back what Images copied.
func (d Devices) Reinstate(ctx context.Context, of []*strategy.Variable, images [][][]byte) error {
	return (&replay{machine: d.machine, variables: of}).reinstate(ctx, images)
}
