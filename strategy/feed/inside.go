package feed

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))

// machine is the internal API of a strategy that this package uses.
type machine interface {
	// RequireEager returns an error in replica code, in another strategy's scope and inside a
	// traced step.
	RequireEager(ctx context.Context, op, instead string) error
	// Batch copies the replicas' parts of a batch to the devices, like PerReplica. A step accepts
	// such values only with the same number of rows.
	Batch(ctx context.Context, values []any, a logical.Annotation) (*strategy.PerReplica, error)
}
