package generate

import (
	"context"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/strategy"
)

var (
	_ = inside.Of[internalStrategy]((*strategy.TPUStrategy)(nil))
	_ = inside.Of[loopFunction]((*strategy.Function)(nil))
)

// internalStrategy is the internal API of a strategy that this package uses.
type internalStrategy interface {
	// Usable returns an error for a strategy that is closed or compiles ahead of time, and for
	// calls within a step function.
	Usable(ctx context.Context, op string) error
	// State creates variables with a tensor of the given shape on each replica, initialized with
	// zeros, with the names and annotations of opts. Checkpoints, rules and optimizers ignore these
	// variables.
	State(ctx context.Context, of []shapes.Shape, opts []strategy.VariableOptions) ([]*strategy.Variable, error)
	// Outline returns a mirrored value without contents.
	Outline(shape shapes.Shape) (strategy.Value, error)
}

// loopFunction is a function whose launch repeats the step while its first result is true, at most the
// given number of times.
type loopFunction interface{ Repeat(most int) }
