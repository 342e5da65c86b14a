package number

import (
	"fmt"
	"math"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
)

// IsNumber reports whether x is a Go number that [Convert] converts to another dtype: an int,
// int32, int64, float32 or float64. A Go value of another type, such as a uint8, keeps its own
// dtype.
func IsNumber(x any) bool {
	switch x.(type) {
	case float64, float32, int, int32, int64:
		return true
	}
	return false
}

// Convert returns the number x as a Go value of the dtype. The error is an [*errkind.Fault] for the
// operation op: of kind TypeError for a float and an integer dtype, and of kind ValueError for a
// number that the dtype cannot represent.
func Convert(op string, x any, dtype dtypes.DType) (any, error) {
	value := reflect.ValueOf(x)
	if _, err := PluginDType(dtype); err != nil || dtype == dtypes.Bool {
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

// realPart returns the real part of a Go value of a float or complex dtype as a float64.
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

// ConvertAll converts each number, as [Convert] does.
func ConvertAll(op string, numbers []any, dtype dtypes.DType) ([]any, error) {
	converted := make([]any, len(numbers))
	for r, x := range numbers {
		var err error
		if converted[r], err = Convert(op, x, dtype); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// CommonDType returns the dtype of the result if an operation combines only Go numbers and no
// tensor. A float takes precedence over integers. An int or a float64, the types of Go's untyped
// constants, takes the dtype of the other numbers of its kind.
func CommonDType(numbers ...any) dtypes.DType {
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

// IsSummable reports whether values of a dtype can be added.
func IsSummable(dtype dtypes.DType) bool {
	return dtype.IsFloat() || dtype.IsInt() || dtype.IsComplex()
}

// CheckSummableTraced returns an error of kind TypeError if values of the dtype cannot be added.
// Use it in code that traces a step, and [CheckSummable] in other code.
func CheckSummableTraced(op string, dtype dtypes.DType) error {
	return checkSummable(errkind.TypeError, op, dtype)
}

// CheckSummable returns an error of kind InvalidArgumentError if values of the dtype cannot be
// added. Use it in code that has tensors instead of graph nodes, for which TensorFlow returns
// another kind of error.
func CheckSummable(op string, dtype dtypes.DType) error {
	return checkSummable(errkind.InvalidArgumentError, op, dtype)
}

func checkSummable(kind errkind.Kind, op string, dtype dtypes.DType) error {
	if IsSummable(dtype) {
		return nil
	}
	return fault.New(kind, op, "convert it to a number first", "a sum or a mean of dtype %s", dtype)
}
