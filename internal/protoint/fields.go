package protoint

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is a field of a message: a varint, or bytes with a length.
type Field struct {
	Number protowire.Number
	Value  uint64
	Bytes  []byte // nil for a varint
}

// Fields walks the fields of a message; those of other kinds are left out. The last is an error
// where the message is malformed.
func Fields(m []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for len(m) > 0 {
			n, kind, size := protowire.ConsumeTag(m)
			if size < 0 {
				yield(Field{}, protowire.ParseError(size))
				return
			}
			m = m[size:]
			f := Field{Number: n}
			switch kind {
			case protowire.VarintType:
				f.Value, size = protowire.ConsumeVarint(m)
			case protowire.BytesType:
				f.Bytes, size = protowire.ConsumeBytes(m)
			default:
				size = protowire.ConsumeFieldValue(n, kind, m)
			}
			if size < 0 {
				yield(Field{}, fmt.Errorf("field %d: %w", n, protowire.ParseError(size)))
				return
			}
			m = m[size:]
			if (kind == protowire.VarintType || kind == protowire.BytesType) && !yield(f, nil) {
				return
			}
		}
	}
}

// Numbers appends the values of one repeated field of numbers, packed or not.
func Numbers[T int64 | uint64](list []T, f Field) ([]T, error) {
	if f.Bytes == nil {
		return append(list, T(f.Value)), nil
	}
	for b := f.Bytes; len(b) > 0; {
		v, size := protowire.ConsumeVarint(b)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		list, b = append(list, T(v)), b[size:]
	}
	return list, nil
}
