package remat

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ParsePolicy returns the policy that a command line calls by a name: "none" is [Everything], as
// nothing is computed again, "products" is [Products], and "full" is [Nothing], as all is computed
// again. Another name is an error of kind ValueError.
func ParsePolicy(name string) (Policy, error) {
	switch name {
	case "none":
		return Everything(), nil
	case "products":
		return Products(), nil
	case "full":
		return Nothing(), nil
	}
	return Policy{}, &errkind.Fault{Op: "remat: parse", Reason: fmt.Sprintf("no policy %q", name),
		Hint: `write "none", "products" or "full"`, Class: errkind.ValueError}
}
