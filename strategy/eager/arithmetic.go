package eager

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// Add returns a + b, element by element, on the devices. A scalar goes with any shape. Add, Sub,
// Mul and Div join the replicas.
//
// A Go number (int, int32, int64, float32 or float64, which may differ from replica to replica)
// takes the other operand's dtype. As in TensorFlow a float is never an integer: 2.5, or 2.0,
// beside an Int32 is an [*strategy.Error] of kind TypeError. A number out of the dtype's range, or
// an integer that a float dtype does not have, is a ValueError; a float beside floats is rounded.
// Of two numbers a float comes before an integer, and int and float64 take the dtype of the other.
// Other values do not convert: operands of different dtypes are an InvalidArgumentError.
func (rc *ReplicaContext) Add(a, b any) (any, error) { return rc.binary("Add", graph.Add, a, b) }

// Sub returns a - b, like [ReplicaContext.Add].
func (rc *ReplicaContext) Sub(a, b any) (any, error) { return rc.binary("Sub", graph.Sub, a, b) }

// Mul returns a * b, like [ReplicaContext.Add].
func (rc *ReplicaContext) Mul(a, b any) (any, error) { return rc.binary("Mul", graph.Mul, a, b) }

// Div returns a / b, like [ReplicaContext.Add]; integers truncate.
func (rc *ReplicaContext) Div(a, b any) (any, error) { return rc.binary("Div", graph.Div, a, b) }

func (rc *ReplicaContext) binary(name string, apply func(a, b *graph.Node) *graph.Node, a, b any) (any, error) {
	s := rc.strategy
	if rc.tracing != nil {
		return binaryIn(rc, name, apply, a, b)
	}
	return rc.join(name, [2]any{a, b}, func(all []any) ([]any, error) {
		columns, err := operands(name, all)
		if err != nil {
			return nil, err
		}
		values := make([]strategy.Value, 2)
		mirrored, equal := rc.update, true
		// A number waits for the other operand, whose dtype it takes.
		for _, i := range order(columns) {
			column := columns[i]
			if other := values[1-i]; other != nil && allNumbers(column) {
				if column, err = number.AllAs(name, column, other.Shape().DType); err != nil {
					return nil, err
				}
			}
			v, release, err := rc.operand(name, i, column)
			if err != nil {
				return nil, err
			}
			defer release()
			values[i] = v
			_, replicated := v.(*strategy.Mirrored)
			mirrored = mirrored && replicated
			equal = equal && !varying(v)
		}
		if a, b := values[0].Shape().DType, values[1].Shape().DType; a != b {
			return nil, fault.New(errkind.InvalidArgumentError, name, "convert one of them in a compiled function", "a %s beside a %s", a, b)
		}
		ragged, err := raggedOperands(s, name, values[0], values[1])
		if err != nil {
			return nil, err
		}
		results, err := inner(s).Call(rc.outer(), "eager_"+name, func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{apply(in[0], in[1])}
		}, values, nil, mirrored)
		if err != nil {
			return nil, err
		}
		innerValue(results[0]).Mark(ragged, equal || s.NumReplicasInSync() == 1)
		return Of(s).split(results[0])
	})
}

// raggedOperands are the replicas' shapes of an operation's result, if they differ: the operands
// have the same, or one of them is a scalar.
func raggedOperands(of *strategy.TPUStrategy, name string, a, b strategy.Value) ([][]int, error) {
	for _, v := range []strategy.Value{a, b} {
		if _, steps := v.(*strategy.BatchStack); steps {
			return nil, fault.New(errkind.TypeError, name, "give the result of a step", "a value of several steps")
		}
	}
	ofA, ofB := innerValue(a).Ragged(), innerValue(b).Ragged()
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
			return nil, fault.New(errkind.InvalidArgumentError, name, "give operands of one shape on each replica, or a scalar",
				"replica %d has a %v beside a %v", r, x, y)
		}
	}
	return ofA, nil
}

// operands are the two operands, each by replica. Numbers on both sides are brought to one dtype.
func operands(name string, all []any) (columns [2][]any, err error) {
	var numbers []any
	for _, pair := range all {
		for i, x := range pair.([2]any) {
			columns[i] = append(columns[i], x)
			numbers = append(numbers, x)
		}
	}
	if !allNumbers(numbers) {
		return columns, nil
	}
	dtype := number.DType(numbers...)
	for i := range columns {
		if columns[i], err = number.AllAs(name, columns[i], dtype); err != nil {
			return columns, err
		}
	}
	return columns, nil
}

// order returns the order in which operands become values: numbers last.
func order(columns [2][]any) [2]int {
	if allNumbers(columns[0]) {
		return [2]int{1, 0}
	}
	return [2]int{0, 1}
}

func allNumbers(column []any) bool {
	for _, x := range column {
		if !number.Is(x) {
			return false
		}
	}
	return true
}
