package lowering

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// combiner is the op that combines two elements in a reduction, scatter or all-reduce.
type combiner int

const (
	combineSum combiner = iota
	combineProduct
	combineMax
	combineMin
	combineAnd
	combineOr
	combineXor
	selectGreaterOrEqual // the last two are comparisons, for SelectAndScatter
	selectLessOrEqual
)

var combinerTable = [...]struct {
	op      binaryOp
	neutral scalarValue
}{
	combineSum:     {stablehlo.Add, valueZero},
	combineProduct: {stablehlo.Multiply, valueOne},
	combineMax:     {stablehlo.Maximum, valueLowest},
	combineMin:     {stablehlo.Minimum, valueHighest},
	combineAnd:     {stablehlo.And, valueAllOnes},
	combineOr:      {stablehlo.Or, valueZero},
	combineXor:     {stablehlo.Xor, valueZero},
	selectGreaterOrEqual: {op: func(l, r *stablehlo.Value) (*stablehlo.Value, error) {
		return stablehlo.Compare(l, r, types.CompareGE, comparisonType(l.Shape().DType))
	}},
	selectLessOrEqual: {op: func(l, r *stablehlo.Value) (*stablehlo.Value, error) {
		return stablehlo.Compare(l, r, types.CompareLE, comparisonType(l.Shape().DType))
	}},
}

func combinerOf(t compute.ReduceOpType) combiner {
	kind, ok := map[compute.ReduceOpType]combiner{compute.ReduceOpSum: combineSum, compute.ReduceOpProduct: combineProduct,
		compute.ReduceOpMax: combineMax, compute.ReduceOpMin: combineMin}[t]
	if !ok {
		panic(fmt.Errorf("reduction %s is not one of Sum, Product, Max, Min", t))
	}
	return kind
}

type combinerKey struct {
	kind  combiner
	dtype dtypes.DType
}

// combiner returns the closure that combines two scalars in a reduction. It creates the closure
// once for each dtype.
func (f *Function) combiner(kind combiner, d dtypes.DType) *stablehlo.Function {
	key := combinerKey{kind, d}
	if closure, ok := f.combiners[key]; ok {
		return closure
	}
	closure := f.fn.Closure()
	args := f.closureArgs(closure, d, d)
	check(closure.Return(must(combinerTable[kind].op(args[0], args[1]))))
	f.combiners[key] = closure
	return closure
}

func (f *Function) closureArgs(closure *stablehlo.Function, ds ...dtypes.DType) []*stablehlo.Value {
	args := make([]*stablehlo.Value, len(ds))
	for i, d := range ds {
		args[i] = must(closure.NamedInput(f.names.uniqueName("e"), xshapes.Make(d)))
	}
	return args
}

// neutral adds the combiner's neutral element, such as 0 for a sum, as a constant.
func (f *Function) neutral(kind combiner, d dtypes.DType) *stablehlo.Value {
	return f.opBuilder().specialConstant(d, combinerTable[kind].neutral)
}
