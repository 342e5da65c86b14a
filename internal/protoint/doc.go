// Package protoint reads the protobuf messages that this module decodes by hand: device
// assignments, shardings, and the programs that compilers give back. Their Go types are not linked
// in, because another package of a program may register the same messages, and a second
// registration panics.
//
// [Into] reads a message into variables, by the numbers of its fields. [Fields] walks the fields,
// those that are varints or bytes. [Numbers] collects a repeated field of numbers, which encoders write
// one by one or packed; [Field.Int] and [Field.Ints] do so for numbers that have to fit an int32. A
// malformed message is an error, never a panic. [AppendInt], [AppendBytes] and [AppendInts] write
// fields.
package protoint
