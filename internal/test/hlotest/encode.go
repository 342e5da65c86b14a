package hlotest

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// The functions below encode HLO programs as protocol buffers, like compilers do.

// Number appends a varint field to b.
func Number(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// Message appends a message or a string to b.
func Message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// Packed appends a packed list of numbers to b.
func Packed(b []byte, field protowire.Number, list ...uint64) []byte {
	var m []byte
	for _, n := range list {
		m = protowire.AppendVarint(m, n)
	}
	return Message(b, field, m)
}

// Floats returns the shape of an f32 array.
func Floats(dims ...uint64) []byte { return Packed(Number(nil, 2, 11), 3, dims...) }

// Instruction returns an encoded instruction. more contains additional encoded fields.
func Instruction(id uint64, opcode string, shape []byte, operands []uint64, more ...[]byte) []byte {
	b := Message(nil, 2, []byte(opcode))
	b = Message(b, 3, shape)
	b = Number(b, 35, id)
	if len(operands) > 0 {
		b = Packed(b, 36, operands...)
	}
	for _, m := range more {
		b = append(b, m...)
	}
	return b
}

// Computation returns an encoded computation.
func Computation(id uint64, instructions ...[]byte) []byte {
	var b []byte
	for _, i := range instructions {
		b = Message(b, 2, i)
	}
	return Number(b, 5, id)
}

// Program returns a program of encoded computations. entry is the ID of the entry computation.
func Program(entry uint64, computations ...[]byte) pjrt.Program {
	var b []byte
	for _, c := range computations {
		b = Message(b, 3, c)
	}
	return pjrt.Program{Code: Number(b, 6, entry), Format: pjrt.FormatHLO}
}

// Groups returns the encoded replica groups of a collective.
func Groups(groups ...[]uint64) []byte {
	var list []byte
	for _, g := range groups {
		list = Message(list, 1, Packed(nil, 1, g...))
	}
	return Message(nil, 87, list)
}

// Product returns the encoded dimension numbers of a matrix product that contracts dimension 1 of
// the left operand.
func Product() []byte { return Message(nil, 30, Packed(nil, 1, 1)) }

// Cycles returns an encoded backend configuration with the compiler's cycle estimate.
func Cycles(n string) []byte {
	return Message(nil, 43, []byte(`{"window_config":{"estimated_cycles":"`+n+`"}}`))
}

// Iterations returns an encoded backend configuration with the trip count of a loop.
func Iterations(n string) []byte {
	return Message(nil, 43, []byte(`{"known_trip_count":{"n":"`+n+`"}}`))
}
