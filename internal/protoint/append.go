package protoint

import "google.golang.org/protobuf/encoding/protowire"

// AppendInt appends a varint field to an encoded protobuf message.
func AppendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

// AppendBytes appends a message, string or bytes field to an encoded protobuf message.
func AppendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// AppendInts appends a packed repeated varint field to a protobuf message. An empty list is omitted.
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
