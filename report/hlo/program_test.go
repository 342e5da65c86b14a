package hlo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

var (
	number, message, packed          = hlotest.Number, hlotest.Message, hlotest.Packed
	floats, op, computation, program = hlotest.Floats, hlotest.Instruction, hlotest.Computation, hlotest.Program
	grouped                          = hlotest.Groups
)

// scalar is the shape of an s32, and integer a constant of it.
var scalar = number(nil, 2, 4)

func TestDamagedProgramsAreErrors(t *testing.T) {
	iota := func(count, size uint64, reshape, perm []uint64) []byte {
		return packed(packed(number(number(nil, 1, count), 2, size), 3, reshape...), 4, perm...)
	}
	deep := floats(1)
	for range 100 {
		deep = message(nil, 4, deep)
	}
	in := func(more []byte) pjrt.Program {
		return program(1, computation(1, op(1, "all-reduce", floats(1), nil, more)))
	}
	for name, p := range map[string]pjrt.Program{
		"nothing":        {Format: pjrt.FormatHLO},
		"no entry":       program(7, computation(1)),
		"noise":          {Format: pjrt.FormatHLO, Code: []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")},
		"cut":            {Format: pjrt.FormatHLO, Code: in(nil).Code[:9]},
		"cut config":     {Format: pjrt.FormatHLOWithConfig, Code: []byte{0x0a, 0x7f}},
		"no groups":      in(message(nil, 92, iota(0, 2, nil, nil))),
		"many groups":    in(message(nil, 92, iota(1<<40, 1<<40, nil, nil))),
		"a wrong shape":  in(message(nil, 92, iota(2, 2, []uint64{3}, []uint64{0}))),
		"a zero shape":   in(message(nil, 92, iota(2, 2, []uint64{0}, []uint64{0}))),
		"a wrong perm":   in(message(nil, 92, iota(2, 2, []uint64{2, 2}, []uint64{0, 0}))),
		"a perm too far": in(message(nil, 92, iota(2, 2, []uint64{2, 2}, []uint64{0, 9}))),
		"a far device":   in(grouped([]uint64{1 << 40})),
		"a deep shape":   program(1, computation(1, op(1, "tuple", deep, nil))),
		"an axis too far": in(message(nil, 93, message(message(nil, 1, message(nil, 1, number(nil, 2, 2))), 2,
			number(nil, 1, 9)))),
		"an axis of zero": in(message(nil, 93, message(nil, 1, message(nil, 1, number(nil, 2, 0))))),
		"an uneven part": in(message(nil, 93, message(message(nil, 1, message(nil, 1, number(nil, 2, 6))), 2,
			message(nil, 2, number(number(nil, 1, 4), 2, 2))))),
		"a part of zero": in(message(nil, 93, message(message(nil, 1, message(nil, 1, number(nil, 2, 6))), 2,
			message(nil, 2, nil)))),
		"damaged operands": program(1, computation(1, message(nil, 36, []byte{0x80}))),
	} {
		_, err := Parse(p, nil)
		require.ErrorIs(t, err, ErrProgram, name)
	}
	_, err := Parse(pjrt.Program{Format: "mlir"}, nil)
	require.ErrorContains(t, err, "mlir")
	// Recursive computations must not hang.
	loop, err := Parse(program(1, computation(1, op(1, "call", floats(1), nil, packed(nil, 38, 1, 1, 1)))), nil)
	require.NoError(t, err)
	assert.Equal(t, loop.Entry, loop.Entry.Instructions[0].Called[2])
}

func FuzzParseProgram(f *testing.F) {
	f.Add(program(1, computation(1, op(1, "parameter", floats(4), nil), op(2, "all-reduce", floats(4), []uint64{1},
		grouped([]uint64{0, 1})))).Code)
	f.Add(program(1, computation(1, op(1, "while", floats(4), nil, packed(nil, 38, 1)))).Code)
	f.Add([]byte{0x0a, 0x00})
	f.Add(loop([][]byte{integer(302, 27), op(309, "compare", number(nil, 2, 1), []uint64{301, 302},
		message(nil, 63, []byte("LT")))},
		[][]byte{integer(204, 1), op(208, "add", scalar, []uint64{201, 204})}).Code)
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, format := range []string{pjrt.FormatHLO, pjrt.FormatHLOWithConfig} {
			p, err := Parse(pjrt.Program{Code: code, Format: format}, nil)
			if err != nil {
				continue
			}
			for _, i := range p.Entry.Instructions {
				if i.FLOPs < 0 || i.BytesAccessed < i.MainBytes || i.MainBytes < 0 || i.Iterations < 0 || i.Bytes < 0 {
					t.Fatalf("%+v", i)
				}
			}
		}
	})
}
