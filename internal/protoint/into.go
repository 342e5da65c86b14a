package protoint

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Into says where the fields of a message go, by their numbers:
//
//	err := protoint.Into{1: &name, 3: &dims, 5: protoint.Into{8: &memory}}.Read(message)
//
// A place is a *string or a *[]byte, which shares the message's memory; a *uint64, *int64 or *bool; a
// *float64; a *[]uint64 or *[]float64 of a repeated field, packed or not; an Into of the message that
// the field holds; or a function, func([]byte) error of bytes and func(uint64) of a number or its bits.
// A field without a place, or of another wire type than its place has, is left out.
type Into []any

// Read reads a message. It returns the error of the first function that fails, or of what is malformed.
func (to Into) Read(m []byte) error {
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return protowire.ParseError(size)
		}
		m = m[size:]
		if size = protowire.ConsumeFieldValue(n, kind, m); size < 0 {
			return fmt.Errorf("field %d: %w", n, protowire.ParseError(size))
		}
		if int(n) < len(to) && to[n] != nil {
			if err := put(to[n], kind, m[:size]); err != nil {
				return err
			}
		}
		m = m[size:]
	}
	return nil
}

// put brings a field, which is well formed, to its place.
func put(place any, kind protowire.Type, field []byte) error {
	switch kind {
	case protowire.VarintType:
		x, _ := protowire.ConsumeVarint(field)
		switch place := place.(type) {
		case *uint64:
			*place = x
		case *int64:
			*place = int64(x)
		case *bool:
			*place = x != 0
		case *[]uint64:
			*place = append(*place, x)
		case func(uint64):
			place(x)
		}
	case protowire.Fixed32Type, protowire.Fixed64Type:
		bits, size := protowire.ConsumeFixed64(field)
		if size < 0 {
			short, _ := protowire.ConsumeFixed32(field)
			bits = uint64(short)
		}
		switch place := place.(type) {
		case *float64:
			*place = math.Float64frombits(bits)
		case *[]float64:
			*place = append(*place, math.Float64frombits(bits))
		case func(uint64):
			place(bits)
		}
	case protowire.BytesType:
		b, _ := protowire.ConsumeBytes(field)
		switch place := place.(type) {
		case *string:
			*place = string(b)
		case *[]byte:
			*place = b
		case *[]uint64:
			list, err := Numbers(*place, Field{Bytes: b})
			*place = list
			return err
		case *[]float64:
			for ; len(b) >= 8; b = b[8:] {
				bits, _ := protowire.ConsumeFixed64(b)
				*place = append(*place, math.Float64frombits(bits))
			}
		case Into:
			return place.Read(b)
		case func([]byte) error:
			return place(b)
		}
	}
	return nil
}
