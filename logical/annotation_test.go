package logical_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/logical"
)

func ExampleAnnotation_ValidateOn() {
	mesh, _ := logical.NewMesh(4)
	fmt.Println(logical.SplitInto(1, 4).ValidateOn(mesh, "embedding", []int{1000, 30}))
	// Output:
	// logical: split "embedding" of shape [1000 30]: dimension 1 of size 30 is not divisible into 4 parts; pad the dimension to 32 or split another one
}
