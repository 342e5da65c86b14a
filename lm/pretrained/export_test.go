package pretrained

import (
	"context"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Given is a value that is read in parts, for a variable of a store.
type Given struct {
	Path  string
	Parts lazytensor.Reader
}

// Give sets the values of variables like Load.
func Give(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, all []Given) (*Report, error) {
	values := make([]variableValue, len(all))
	for i, x := range all {
		values[i] = variableValue{x.Path, x.Parts}
	}
	return setVariables(ctx, s, store, values)
}
