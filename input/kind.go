package input

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// Kind is the element type of a [Tensor]. The zero value, [Invalid], is not the kind of a valid
// tensor.
type Kind uint8

// The kinds of tensors. String tensors contain raw bytes in Go strings. They exist only on the
// host: convert them to numbers with Map before a transfer to a device.
const (
	Invalid Kind = iota
	Bool
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	Complex64
	Complex128
	String
)

type kindInfo struct {
	name  string
	bytes int
	dtype dtypes.DType
	empty storage
}

// kinds is indexed by Kind and never written.
var kinds = [...]kindInfo{
	Invalid:    {"invalid", 0, dtypes.InvalidDType, nil},
	Bool:       {"bool", 1, dtypes.Bool, new(typedStorage[bool])},
	Int8:       {"int8", 1, dtypes.Int8, new(typedStorage[int8])},
	Int16:      {"int16", 2, dtypes.Int16, new(typedStorage[int16])},
	Int32:      {"int32", 4, dtypes.Int32, new(typedStorage[int32])},
	Int64:      {"int64", 8, dtypes.Int64, new(typedStorage[int64])},
	Uint8:      {"uint8", 1, dtypes.Uint8, new(typedStorage[uint8])},
	Uint16:     {"uint16", 2, dtypes.Uint16, new(typedStorage[uint16])},
	Uint32:     {"uint32", 4, dtypes.Uint32, new(typedStorage[uint32])},
	Uint64:     {"uint64", 8, dtypes.Uint64, new(typedStorage[uint64])},
	Float16:    {"float16", 2, dtypes.Float16, new(typedStorage[float16.Float16])},
	BFloat16:   {"bfloat16", 2, dtypes.BFloat16, new(typedStorage[bfloat16.BFloat16])},
	Float32:    {"float32", 4, dtypes.Float32, new(typedStorage[float32])},
	Float64:    {"float64", 8, dtypes.Float64, new(typedStorage[float64])},
	Complex64:  {"complex64", 8, dtypes.Complex64, new(typedStorage[complex64])},
	Complex128: {"complex128", 16, dtypes.Complex128, new(typedStorage[complex128])},
	String:     {"string", 0, dtypes.InvalidDType, new(typedStorage[string])},
}

// Valid reports whether a tensor can have the kind k.
func (k Kind) Valid() bool { return k > Invalid && int(k) < len(kinds) }

// String returns the name, such as "float32".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Size returns the number of bytes of one value. It returns 0 for strings and invalid kinds.
func (k Kind) Size() int {
	if !k.Valid() {
		return 0
	}
	return kinds[k].bytes
}

// DType returns the corresponding dtype of GoMLX's compute module. It returns false for strings and
// invalid kinds.
func (k Kind) DType() (dtypes.DType, bool) {
	if !k.Valid() || k == String {
		return dtypes.InvalidDType, false
	}
	return kinds[k].dtype, true
}

// KindOf returns the kind for a dtype of GoMLX's compute module. It returns false if host tensors
// do not support the dtype.
func KindOf(dtype dtypes.DType) (Kind, bool) {
	for k := Bool; k < String; k++ {
		if kinds[k].dtype == dtype {
			return k, true
		}
	}
	return Invalid, false
}
