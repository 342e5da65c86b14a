package pjrt

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

var errMalformedHLO = errkind.New(errkind.InternalError, "malformed HLO proto")

// forEachField calls f for each field of an encoded protocol buffer. v is the value of a varint
// field, and b the value of a length-delimited field. Fields of other types are skipped.
func forEachField(message []byte, f func(n protowire.Number, v uint64, b []byte) error) error {
	for field, err := range protoint.Fields(message) {
		if err != nil {
			return fmt.Errorf("%w: %v", errMalformedHLO, err)
		}
		if err := f(field.Number, field.Value, field.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// lastField returns the value of the last length-delimited field with the given number, or nil if
// the message has no such field.
func lastField(message []byte, number protowire.Number) (found []byte, err error) {
	err = forEachField(message, func(n protowire.Number, _ uint64, b []byte) error {
		if n == number && b != nil {
			found = b
		}
		return nil
	})
	return found, err
}

// appendIntegers appends the values of a repeated integer field to list. For a packed field, the
// values are encoded in b; otherwise v is the only value.
func appendIntegers(list []int64, v uint64, b []byte) ([]int64, error) {
	list, err := protoint.AppendNumbers(list, protoint.Field{Value: v, Bytes: b})
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errMalformedHLO, err)
	}
	return list, nil
}

var errDynamicShape = errors.New("a shape has a dynamic dimension")

// parseShape decodes a ShapeProto. Its fields are: 2 element type, 3 dimensions, 4 tuple elements,
// 5 layout, 6 dynamic dimensions. s is nil for a tuple. rowMajor reports whether all arrays have a
// row-major layout. The error is errDynamicShape if a dimension, including one of a tuple element,
// is dynamic.
func parseShape(shapeProto []byte) (s *shape, rowMajor bool, err error) {
	var dtype DType
	var dims []int64
	rowMajor = true
	if err := checkStaticShape(shapeProto); err != nil {
		return nil, false, err
	}
	err = forEachField(shapeProto, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 2:
			dtype = dtypeFromXLA(v)
		case 3:
			dims, err = appendIntegers(dims, v, b)
		case 4:
			// The elements of a result are arrays. Nested tuples are ignored, which limits the depth.
			layout, err := lastField(b, 5)
			if err != nil {
				return err
			}
			if err := checkStaticShape(b); err != nil {
				return err
			}
			isMajor, err := isRowMajor(layout)
			rowMajor = rowMajor && isMajor
			return err
		case 5:
			isMajor, err := isRowMajor(b)
			rowMajor = rowMajor && isMajor
			return err
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if dtype == Invalid {
		return nil, rowMajor, nil
	}
	return newShapeInt64(dtype, dims), rowMajor, nil
}

// checkStaticShape returns errDynamicShape if a dimension of a ShapeProto is dynamic. Field 6 marks
// bounded dynamic dimensions; unbounded dynamic dimensions have a negative size.
func checkStaticShape(shapeProto []byte) error {
	return forEachField(shapeProto, func(n protowire.Number, v uint64, b []byte) error {
		if n != 3 && n != 6 {
			return nil
		}
		values, err := appendIntegers(nil, v, b)
		if err != nil {
			return err
		}
		for _, x := range values {
			if n == 6 && x != 0 || n == 3 && x < 0 {
				return errDynamicShape
			}
		}
		return nil
	})
}

// isRowMajor reports whether an encoded LayoutProto is row-major. Its field 1 lists the dimensions
// from minor to major.
func isRowMajor(layout []byte) (bool, error) {
	var order []int64
	err := forEachField(layout, func(n protowire.Number, v uint64, b []byte) (err error) {
		if n == 1 {
			order, err = appendIntegers(order, v, b)
		}
		return err
	})
	for i, d := range order {
		if d != int64(len(order)-1-i) {
			return false, err
		}
	}
	return true, err
}
