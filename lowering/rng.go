package lowering

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

// RNGBitGenerator returns random bits of the given shape and the next state. It uses the algorithm
// of Options.Random.
func (f *Function) RNGBitGenerator(state compute.Value, shape shapes.Shape) (newState, bits compute.Value, err error) {
	if f.builder.backend.opts.Random == RandomPCG {
		if newState, bits, err = f.pcgBits(state, shape); err != nil {
			return nil, nil, &OpError{Op: "RNGBitGenerator", Function: f.name, Err: err}
		}
		return newState, bits, nil
	}
	out, err := f.addOps("RNGBitGenerator", valueList(state), func(in []*stablehlo.Value) []*stablehlo.Value {
		s := in[0].Shape()
		if s.DType != dtypes.Uint64 || s.Rank() != 1 || s.Dimensions[0] < 2 || s.Dimensions[0] > 3 {
			panic(fmt.Errorf("the Philox state must be Uint64 of dimension 2 or 3, got %s", s))
		}
		next, values, err := stablehlo.RNGBitGenerator(in[0], must(StableHLOShape(shape)), types.RNGPhilox)
		return must([]*stablehlo.Value{next, values}, err)
	})
	if err != nil {
		return nil, nil, err
	}
	return out[0], out[1], nil
}
