package protoint

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is a varint or length-delimited field of a protobuf message.
type Field struct {
	Number protowire.Number
	Value  uint64
	Bytes  []byte // nil for a varint
}

// Fields iterates over the varint and length-delimited fields of a protobuf message and skips all
// others. If the message is malformed, the iteration ends with an error.
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

// AppendNumbers decodes one occurrence of a repeated protobuf field, packed or not, and appends the
// numbers to list.
func AppendNumbers[T int64 | uint64](list []T, f Field) ([]T, error) {
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
