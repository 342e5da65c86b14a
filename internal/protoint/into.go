package protoint

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Scanner maps field numbers to the variables that receive the values:
//
//	err := protoint.Scanner{1: &name, 3: &dims, 5: protoint.Scanner{8: &memory}}.Read(message)
//
// A destination is a *string or *[]byte, which shares memory with the message; a *uint64, *int64,
// *bool or *float64; a *[]uint64 or *[]float64 for a repeated field, packed or not; a Scanner for a
// nested message; or a callback, func([]byte) error for bytes or func(uint64) for a number or its
// bits. Fields without a destination or with another wire type are skipped.
type Scanner []any

// Read decodes a protobuf message. It returns the first error of a callback, or an error for a
// malformed message.
func (s Scanner) Read(m []byte) error {
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return protowire.ParseError(size)
		}
		m = m[size:]
		if size = protowire.ConsumeFieldValue(n, kind, m); size < 0 {
			return fmt.Errorf("field %d: %w", n, protowire.ParseError(size))
		}
		if int(n) < len(s) && s[n] != nil {
			if err := storeField(s[n], kind, m[:size]); err != nil {
				return err
			}
		}
		m = m[size:]
	}
	return nil
}

// storeField stores the value of a protobuf field in its destination. The field must be
// well-formed.
func storeField(dst any, kind protowire.Type, field []byte) error {
	switch kind {
	case protowire.VarintType:
		x, _ := protowire.ConsumeVarint(field)
		switch dst := dst.(type) {
		case *uint64:
			*dst = x
		case *int64:
			*dst = int64(x)
		case *bool:
			*dst = x != 0
		case *[]uint64:
			*dst = append(*dst, x)
		case func(uint64):
			dst(x)
		}
	case protowire.Fixed32Type, protowire.Fixed64Type:
		bits, size := protowire.ConsumeFixed64(field)
		if size < 0 {
			short, _ := protowire.ConsumeFixed32(field)
			bits = uint64(short)
		}
		switch dst := dst.(type) {
		case *float64:
			*dst = math.Float64frombits(bits)
		case *[]float64:
			*dst = append(*dst, math.Float64frombits(bits))
		case func(uint64):
			dst(bits)
		}
	case protowire.BytesType:
		b, _ := protowire.ConsumeBytes(field)
		switch dst := dst.(type) {
		case *string:
			*dst = string(b)
		case *[]byte:
			*dst = b
		case *[]uint64:
			list, err := AppendNumbers(*dst, Field{Bytes: b})
			*dst = list
			return err
		case *[]float64:
			for ; len(b) >= 8; b = b[8:] {
				bits, _ := protowire.ConsumeFixed64(b)
				*dst = append(*dst, math.Float64frombits(bits))
			}
		case Scanner:
			return dst.Read(b)
		case func([]byte) error:
			return dst(b)
		}
	}
	return nil
}
