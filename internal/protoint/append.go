package protoint

import "google.golang.org/protobuf/encoding/protowire"

// AppendInt appends a field that is a number.
func AppendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

// AppendBytes appends a field that is a message, a text or other bytes.
func AppendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// AppendInts appends a repeated field of numbers, packed. An empty list is left out.
func AppendInts(b []byte, field protowire.Number, values []int) []byte {
	if len(values) == 0 {
		return b
	}
	var packed []byte
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	return AppendBytes(b, field, packed)
}
