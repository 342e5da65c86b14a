package generate

import (
	"context"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/strategy"
)

var (
	_ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
	_ = inside.Of[repeater]((*strategy.Function)(nil))
)

// machine is what this package uses of a strategy beside its contract.
type machine interface {
	// Usable refuses an operation that needs devices, and the code of a step: ahead of time, and once
	// the strategy is closed.
	Usable(ctx context.Context, op string) error
	// State makes variables of which each replica has its own tensor of a shape, zero at first, with
	// the names and annotations of options. No checkpoint, no rule and no optimizer sees them.
	State(ctx context.Context, of []shapes.Shape, opts []strategy.VariableOptions) ([]*strategy.Variable, error)
	// Outline is a mirrored value without contents.
	Outline(shape shapes.Shape) (strategy.Value, error)
}

// repeater is a function whose launch runs the step again as long as its first result is true, and
// most times at most.
type repeater interface{ Repeat(most int) }
