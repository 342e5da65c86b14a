// Package protoint decodes and encodes protobuf messages without generated Go types, such as device
// assignments, shardings and compiled programs. Generated types are not used because another
// package of a program may register the same messages, and a second registration panics.
//
// [Scanner] decodes a message to variables by field number. [Fields] iterates over the varint and
// bytes fields. [AppendNumbers] appends a repeated field of numbers, which may be packed;
// [Field.Int] and [Field.AppendInts] return numbers that must fit into an int32. A malformed
// message is an error and never a panic. [AppendInt], [AppendBytes] and [AppendInts] encode fields.
package protoint
