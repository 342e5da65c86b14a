package replay

import (
	"context"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Devices copies the variables of devices to the host and back.
type Devices struct{ strategy *strategy.TPUStrategy }

// On returns the devices of a strategy.
func On(s *strategy.TPUStrategy) Devices { return Devices{s} }

// Images copies the variables from this process's devices to the host.
func (d Devices) Images(ctx context.Context, of []*strategy.Variable) ([][][]byte, error) {
	return (&replayer{strategy: d.strategy, variables: of}).copyToHost(ctx)
}

// Reinstate copies the result of Images back to the devices.
func (d Devices) Reinstate(ctx context.Context, of []*strategy.Variable, images [][][]byte) error {
	return (&replayer{strategy: d.strategy, variables: of}).restoreVariables(ctx, images)
}
