package pretrained

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// LoadError reports a load that ended early, and what has changed.
type LoadError struct {
	// Loaded are the paths of the variables that have their new values. All others have those from
	// before.
	Loaded []string
	// Err is the cause.
	Err error
}

// Error returns "pretrained: load: N variables have their new values: cause".
func (e *LoadError) Error() string {
	reason := "no variable has changed"
	if len(e.Loaded) > 0 {
		reason = fmt.Sprintf("%d variables have their new values, %q first; the others have not changed", len(e.Loaded), e.Loaded[0])
	}
	return errkind.Text("pretrained: load", reason, e.Err, "")
}

// Kind returns the kind of the cause.
func (e *LoadError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.RuntimeError) }

// Unwrap returns the cause.
func (e *LoadError) Unwrap() error { return e.Err }
