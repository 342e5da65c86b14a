// Package protoint decodes and encodes protobuf messages without generated Go types, such as device
// assignments, shardings and compiled programs. Generated types are not used because another
// package in the same program may register the same messages, and a second registration panics.
//
// [Scanner] decodes fields into variables. [Fields] iterates over the varint and bytes fields.
// [AppendNumbers] decodes a repeated numeric field, which may be packed. [Field.Int] and
// [Field.AppendInts] decode numbers that must fit into an int32. A malformed message results in an
// error and never in a panic. [AppendInt], [AppendBytes] and [AppendInts] encode fields.
package protoint
