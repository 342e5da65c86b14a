package remat

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ParsePolicy returns the policy with the given command-line name: "none" (no rematerialization) is
// [Everything], "products" is [Products], and "full" (full rematerialization) is [Nothing]. Any
// other name is an error of kind ValueError.
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
