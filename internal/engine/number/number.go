package number

import (
	"fmt"
	"math"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/wire"
)

// Is reports whether x is a Go number that takes the dtype of what it meets. Others, such as a
// uint8, are host values of their own dtype.
func Is(x any) bool {
	switch x.(type) {
	case float64, float32, int, int32, int64:
		return true
	}
	return false
}

// As returns a number as the Go value of a dtype. Errors: [*errkind.Fault] of kind TypeError for a
// number of another sort, ValueError for one that does not fit.
func As(op string, x any, dtype dtypes.DType) (any, error) {
	value := reflect.ValueOf(x)
	if _, err := wire.Of(dtype); err != nil || dtype == dtypes.Bool {
		return nil, fault.New(errkind.TypeError, op, "give a value of its dtype", "the number %v for a %s", x, dtype)
	}
	if value.CanFloat() && dtype.IsInt() {
		return nil, fault.New(errkind.TypeError, op, "give an integer, or convert the integers",
			"the float %v for a %s", x, dtype)
	}
	if value.CanInt() && dtype.IsInt() {
		i, to := value.Int(), reflect.New(dtype.GoType()).Elem()
		if to.CanInt() && to.OverflowInt(i) || to.CanUint() && (i < 0 || to.OverflowUint(uint64(i))) {
			return nil, fault.New(errkind.ValueError, op, fmt.Sprintf("give one from %v to %v", dtype.LowestValue(),
				dtype.HighestValue()),
				"the number %d does not fit a %s", i, dtype)
		}
		return shapes.CastAsDType(x, dtype), nil
	}
	cast := shapes.CastAsDType(x, dtype)
	switch now := realPart(cast); {
	case value.CanInt() && (now >= 1<<63 || now < -1<<63 || int64(now) != value.Int()):
		return nil, fault.New(errkind.ValueError, op, "give a float, which is rounded",
			"the integer %d is not exactly a %s", value.Int(), dtype)
	case value.CanFloat() && math.IsInf(now, 0) && !math.IsInf(value.Float(), 0):
		return nil, fault.New(errkind.ValueError, op, "give a smaller one, or Inf",
			"the number %v does not fit a %s", x, dtype)
	}
	return cast, nil
}

// realPart is the real part of a Go value of a float or complex dtype.
func realPart(x any) float64 {
	switch x := x.(type) {
	case complex64:
		return float64(real(x))
	case complex128:
		return real(x)
	case interface{ Float32() float32 }: // float16 and bfloat16
		return float64(x.Float32())
	}
	return reflect.ValueOf(x).Float()
}

// AllAs converts the replicas' numbers.
func AllAs(op string, numbers []any, dtype dtypes.DType) ([]any, error) {
	converted := make([]any, len(numbers))
	for r, x := range numbers {
		var err error
		if converted[r], err = As(op, x, dtype); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// DType is where numbers meet that have no tensor beside them. Floats go before integers. int and
// float64, the types of Go's constants, take the dtype of the others of their sort.
func DType(numbers ...any) dtypes.DType {
	var has struct{ float64, float32, int32, int64 bool }
	for _, x := range numbers {
		switch x.(type) {
		case float64:
			has.float64 = true
		case float32:
			has.float32 = true
		case int32:
			has.int32 = true
		case int64:
			has.int64 = true
		}
	}
	switch {
	case has.float32:
		return dtypes.Float32
	case has.float64:
		return dtypes.Float64
	case has.int32 && !has.int64:
		return dtypes.Int32
	}
	return dtypes.Int64
}

// Summable reports whether values of a dtype can be added.
func Summable(dtype dtypes.DType) bool { return dtype.IsFloat() || dtype.IsInt() || dtype.IsComplex() }

// CheckTraced refuses the dtypes that cannot be summed, where a step is traced.
func CheckTraced(op string, dtype dtypes.DType) error { return check(errkind.TypeError, op, dtype) }

// Check is [CheckTraced] where tensors are at hand: TensorFlow's kinds of error differ.
func Check(op string, dtype dtypes.DType) error {
	return check(errkind.InvalidArgumentError, op, dtype)
}

func check(kind errkind.Kind, op string, dtype dtypes.DType) error {
	if Summable(dtype) {
		return nil
	}
	return fault.New(kind, op, "convert it to a number first", "a sum or a mean of dtype %s", dtype)
}
