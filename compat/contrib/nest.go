package contrib

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/nest"
)

// mapNest replaces the leaves of a nest.
func mapNest(op string, x any, leaf func(any) (any, error)) (any, error) {
	out, err := nest.Map("", x, func(_ string, x any) (any, error) { return leaf(x) })
	if wrong, ok := err.(*nest.Error); ok {
		kind := errkind.ValueError
		if wrong.Mistake == nest.Member {
			kind = errkind.TypeError
		}
		return nil, fault(kind, op, wrong.Hint, "%s", wrong.Reason)
	}
	return out, err
}

// mapAll replaces arguments. Its error says which of them is wrong.
func mapAll(args []any, replace func(any) (any, error)) ([]any, error) {
	out := make([]any, len(args))
	for i, arg := range args {
		var err error
		if out[i], err = replace(arg); err != nil {
			return nil, fmt.Errorf("contrib: argument %d: %w", i, err)
		}
	}
	return out, nil
}
