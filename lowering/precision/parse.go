package precision

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ParsePolicy returns the policy with the given command-line name: "f32" is [Float32], "bf16" is
// [MixedBFloat16] and "f16" is [MixedFloat16]. It also accepts Keras's names "float32",
// "mixed_bfloat16" and "mixed_float16". Any other name is an error of kind ValueError.
func ParsePolicy(name string) (Policy, error) {
	switch name {
	case "f32", "float32":
		return Float32, nil
	case "bf16", "mixed_bfloat16":
		return MixedBFloat16, nil
	case "f16", "mixed_float16":
		return MixedFloat16, nil
	}
	return Policy{}, &errkind.Fault{Op: "precision: parse", Reason: fmt.Sprintf("no policy %q", name),
		Hint: `write "f32", "bf16" or "f16"`, Class: errkind.ValueError}
}
