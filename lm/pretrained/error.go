package pretrained

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// LoadError reports a failed [Load]. It lists the variables whose values were already replaced.
type LoadError struct {
	// Loaded are the paths of the variables with new values. All other variables are unchanged.
	Loaded []string
	// Err is the cause.
	Err error
}

// Error returns the number of changed variables and the cause.
func (e *LoadError) Error() string {
	reason := "no variable has changed"
	if len(e.Loaded) > 0 {
		reason = fmt.Sprintf("%d variables have their new values, %q first; the others have not changed", len(e.Loaded),
			e.Loaded[0])
	}
	return errkind.Format("pretrained: load", reason, e.Err, "")
}

// Kind returns the kind of the cause.
func (e *LoadError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.RuntimeError) }

// Unwrap returns the cause.
func (e *LoadError) Unwrap() error { return e.Err }
