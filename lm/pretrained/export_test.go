package pretrained

import (
	"context"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Given is a value in parts for a variable of a store.
type Given struct {
	Path  string
	Parts lazy.Parts
}

// Give is what Load does with the values that its plan has.
func Give(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, all []Given) (*Report, error) {
	values := make([]value, len(all))
	for i, x := range all {
		values[i] = value{x.Path, x.Parts}
	}
	return give(ctx, s, store, values)
}
