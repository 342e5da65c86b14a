package eager

import (
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Add returns a + b, elementwise, on the devices. A scalar operand is broadcast. Add, Sub, Mul and
// Div are collective calls.
//
// A Go number (int, int32, int64, float32 or float64) is converted to the dtype of the other
// operand, and may differ between replicas. As in TensorFlow, a float is never converted to an
// integer: 2.0 with an Int32 operand is an [*strategy.Error] of kind TypeError. A number outside
// the dtype's range, or an integer that a float dtype cannot represent, is a ValueError; a float is
// rounded. Of two numbers, an integer is converted to the float type of the other, a float64 to
// float32, and an int to the other integer type. Other values are not converted: different dtypes
// are an InvalidArgumentError.
func (rc *ReplicaContext) Add(a, b any) (any, error) { return rc.applyBinary("Add", graph.Add, a, b) }

// Sub returns a - b, like [ReplicaContext.Add].
func (rc *ReplicaContext) Sub(a, b any) (any, error) { return rc.applyBinary("Sub", graph.Sub, a, b) }

// Mul returns a * b, like [ReplicaContext.Add].
func (rc *ReplicaContext) Mul(a, b any) (any, error) { return rc.applyBinary("Mul", graph.Mul, a, b) }

// Div returns a / b, like [ReplicaContext.Add]. Integer division truncates.
func (rc *ReplicaContext) Div(a, b any) (any, error) { return rc.applyBinary("Div", graph.Div, a, b) }

func (rc *ReplicaContext) applyBinary(name string, apply func(a, b *graph.Node) *graph.Node, a, b any) (any, error) {
	s := rc.strategy
	if rc.tracing != nil {
		return fault.CatchPanic(func() any {
			nodes, err := operands(name, []any{[]any{a, b}}, func(i int, column []any) (*graph.Node, error) {
				return rc.tracedOperand(name, i, column[0]), nil
			})
			if err != nil {
				panic(err)
			}
			return apply(nodes[0], nodes[1])
		})
	}
	return rc.callCollective(name, nil, []any{a, b}, func(all []any) ([]any, error) {
		mirrored, equal := rc.inUpdate, true
		var made []func()
		defer func() {
			for _, release := range made {
				release()
			}
		}()
		values, err := operands(name, all, func(i int, column []any) (strategy.Value, error) {
			v, release, err := rc.operand(name, i, column)
			if err != nil {
				return nil, err
			}
			made = append(made, release)
			_, replicated := v.(*strategy.Mirrored)
			mirrored = mirrored && replicated
			equal = equal && !isVarying(v)
			return v, nil
		})
		if err != nil {
			return nil, err
		}
		ragged, err := raggedOperands(s, name, values[0], values[1])
		if err != nil {
			return nil, err
		}
		results, err := engine.Internal(s).RunBuiltin(rc.callerContext(), "eager_"+name,
			func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{apply(in[0], in[1])}
			}, values[:], nil, mirrored)
		if err != nil {
			return nil, err
		}
		engine.Internal(results[0]).SetReplicaShapes(ragged, equal || s.NumReplicasInSync() == 1)
		return Of(s).splitByReplica(results[0])
	})
}

// raggedOperands returns the result's shape on each replica, or nil if the shapes are equal. On
// each replica, the two operands must have the same shape, or one must be a scalar.
func raggedOperands(of *strategy.TPUStrategy, name string, a, b strategy.Value) ([][]int, error) {
	ofA, ofB := engine.Internal(a).ReplicaShapes(), engine.Internal(b).ReplicaShapes()
	switch {
	case ofA == nil && ofB == nil:
		return nil, nil
	case b.Shape().IsScalar():
		return ofA, nil
	case a.Shape().IsScalar():
		return ofB, nil
	}
	for r := range of.NumReplicasInSync() {
		x, y := Component{value: a, replica: r}.Shape().Dimensions, Component{value: b, replica: r}.Shape().Dimensions
		if !slices.Equal(x, y) {
			return nil, fault.New(errkind.InvalidArgumentError, name,
				"give operands of one shape on each replica, or a scalar",
				"replica %d has a %v beside a %v", r, x, y)
		}
	}
	return ofA, nil
}

// operands calls operand to convert each of the two operands of an operation, such as an addition.
// all has a pair of operands for each replica. A Go number is converted to the dtype of the other
// operand. If both operands are Go numbers, they are converted to a common dtype.
func operands[T interface{ Shape() shapes.Shape }](name string, all []any, operand func(i int, column []any) (T,
	error)) (made [2]T, err error) {
	var columns [2][]any
	for _, pair := range all {
		for i, x := range pair.([]any) {
			columns[i] = append(columns[i], x)
		}
	}
	order := [2]int{0, 1}
	if allNumbers(columns[0]) {
		order = [2]int{1, 0}
	}
	last := order[1]
	if numbers := slices.Concat(columns[0], columns[1]); allNumbers(numbers) {
		dtype := number.CommonDType(numbers...)
		for i := range columns {
			if columns[i], err = number.ConvertAll(name, columns[i], dtype); err != nil {
				return made, err
			}
		}
	}
	for _, i := range order {
		if i == last && allNumbers(columns[i]) {
			if columns[i], err = number.ConvertAll(name, columns[i], made[1-i].Shape().DType); err != nil {
				return made, err
			}
		}
		if made[i], err = operand(i, columns[i]); err != nil {
			return made, err
		}
	}
	if a, b := made[0].Shape().DType, made[1].Shape().DType; a != b {
		return made, fault.New(errkind.InvalidArgumentError, name, "convert one of them in a compiled function",
			"a %s beside a %s", a, b)
	}
	return made, nil
}

func allNumbers(column []any) bool {
	for _, x := range column {
		if !number.IsNumber(x) {
			return false
		}
	}
	return true
}
