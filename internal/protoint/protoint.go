package protoint

import (
	"errors"
	"fmt"
	"math"
)

// Int returns the number in a protobuf field. It returns an error unless the number fits into an int32.
func (f Field) Int() (int, error) {
	if f.Bytes != nil {
		return 0, errors.New("bytes instead of a varint")
	}
	if v := int64(f.Value); v >= math.MinInt32 && v <= math.MaxInt32 {
		return int(v), nil
	}
	return 0, fmt.Errorf("%d is out of range", int64(f.Value))
}

// AppendInts decodes one occurrence of a repeated protobuf field, packed or not, and appends the
// numbers to list. It returns an error unless they fit into an int32.
func (f Field) AppendInts(list []int) ([]int, error) {
	values, err := AppendNumbers[uint64](nil, f)
	for _, v := range values {
		n, err := Field{Value: v}.Int()
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, err
}
