package feed

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))

// machine is what this package uses of a strategy beside its contract.
type machine interface {
	// RequireEager refuses a replica's code, other strategies' scopes and a step that is being traced.
	RequireEager(ctx context.Context, op, instead string) error
	// Batch copies the replicas' parts of a batch to the devices, as PerReplica does. A step accepts
	// such values only with the same number of rows.
	Batch(ctx context.Context, values []any, a logical.Annotation) (*strategy.PerReplica, error)
}
