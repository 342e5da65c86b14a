package weights_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// A matrix [out, in] in the file becomes one layer of a stack [layers, in, out].
func Example() {
	dir, err := os.MkdirTemp("", "weights")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	header := `{"h.0.w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},"h.1.w":{"dtype":"U8","shape":[2,3],"data_offsets":[6,12]}}`
	data := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0},
		header+"\x00\x01\x02\x03\x04\x05\x0a\x0b\x0c\x0d\x0e\x0f"...)
	if err := os.WriteFile(filepath.Join(dir, weights.SingleName), data, 0o644); err != nil {
		log.Fatal(err)
	}

	file, err := weights.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	rules := weights.Rules{{Tensor: `h\.(\d+)\.w`, To: []weights.Target{{
		Variable: "/layers/w", Stack: "{1}", Steps: []weights.Step{{Transpose: []int{1, 0}}},
	}}}}
	model := []weights.Variable{{Path: "/layers/w", DType: dtypes.Uint8, Shape: []int{2, 3, 2}}}
	plan, err := weights.NewPlan(file.Tensors(), model, rules, weights.PlanOptions{})
	if err != nil {
		log.Fatal(err)
	}
	second := make([]byte, 6) // the shard of a device that stores the second layer
	if err := plan.Read(context.Background(), file, "/layers/w", []int{1, 0, 0}, []int{1, 3, 2}, second); err != nil {
		log.Fatal(err)
	}
	fmt.Println(second)

	_, err = weights.NewPlan(file.Tensors(), []weights.Variable{{Path: "/layers/w", DType: dtypes.Uint8,
		Shape: []int{4, 3, 2}}}, rules, weights.PlanOptions{})
	fmt.Println(err)
	// Output:
	// [10 13 11 14 12 15]
	// weights: the files do not fit the model
	// missing: variable "/layers/w": it is a stack of 4 layers, [4 3 2], and the files have no layer 2, 3; make the model with 2 layers, or give it files that have them
}
