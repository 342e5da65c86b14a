package contrib

import (
	"github.com/tpustrategy/tpustrategy/internal/nest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// mapNest replaces the leaves of a nest.
func mapNest(op string, x any, leaf func(any) (any, error)) (any, error) {
	out, err := nest.Map("", x, func(_ string, x any) (any, error) { return leaf(x) })
	if wrong, ok := err.(*nest.Error); ok {
		kind := strategy.ValueError
		if wrong.Mistake == nest.Member {
			kind = strategy.TypeError
		}
		return nil, fault(kind, op, wrong.Hint, "%s", wrong.Reason)
	}
	return out, err
}
