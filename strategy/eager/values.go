package eager

import "github.com/tpustrategy/tpustrategy/strategy"

// asValue keeps a nil pointer from becoming a value.
func asValue[T strategy.Value](v T, err error) (strategy.Value, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// isStacked reports whether a value is that of several steps.
func isStacked(v strategy.Value) bool {
	_, stacked := v.(*strategy.BatchStack)
	return stacked
}
