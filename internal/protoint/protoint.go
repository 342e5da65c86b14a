package protoint

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Int reads one number of a field whose wire type is kind. It returns the bytes read.
func Int(b []byte, kind protowire.Type, value *int) (int, error) {
	if kind != protowire.VarintType {
		return 0, fmt.Errorf("wire type %d instead of a varint", kind)
	}
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	if int64(v) < math.MinInt32 || int64(v) > math.MaxInt32 {
		return 0, fmt.Errorf("%d is out of range", int64(v))
	}
	*value = int(int64(v))
	return n, nil
}

// Ints reads one number, or a packed list of them, and appends to values.
func Ints(b []byte, kind protowire.Type, values *[]int) (int, error) {
	if kind != protowire.BytesType {
		return appendInt(b, kind, values)
	}
	packed, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	for len(packed) > 0 {
		m, err := appendInt(packed, protowire.VarintType, values)
		if err != nil {
			return 0, err
		}
		packed = packed[m:]
	}
	return n, nil
}

func appendInt(b []byte, kind protowire.Type, values *[]int) (int, error) {
	var v int
	n, err := Int(b, kind, &v)
	if err == nil {
		*values = append(*values, v)
	}
	return n, err
}
