package precision_test

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/precision"
)

func ExamplePolicy() {
	half := precision.MixedBFloat16
	half.Reduce = dtypes.BFloat16 // gradients cross the interconnect in half the bytes
	fmt.Println(half)
	fmt.Println(precision.Policy{Compute: dtypes.Int32}.Validate())
	// Output:
	// parameters Float32, compute BFloat16, output Float32, accumulate Float32, partial BFloat16, reduce BFloat16
	// precision: Policy.Compute: Int32 is not a dtype that a model can be computed in; use Float32, BFloat16, Float16 or Float64
}
