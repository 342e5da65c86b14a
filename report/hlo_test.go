package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// The tests encode programs like compilers do: as messages of numbered fields.

func number(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func packed(b []byte, field protowire.Number, list ...uint64) []byte {
	var m []byte
	for _, n := range list {
		m = protowire.AppendVarint(m, n)
	}
	return message(b, field, m)
}

// floats returns the shape of an f32 array.
func floats(dims ...uint64) []byte { return packed(number(nil, 2, 11), 3, dims...) }

// op returns an instruction.
func op(id uint64, opcode string, shape []byte, operands []uint64, more ...[]byte) []byte {
	b := message(nil, 2, []byte(opcode))
	b = message(b, 3, shape)
	b = number(b, 35, id)
	if len(operands) > 0 {
		b = packed(b, 36, operands...)
	}
	for _, m := range more {
		b = append(b, m...)
	}
	return b
}

func computation(id uint64, ops ...[]byte) []byte {
	var b []byte
	for _, o := range ops {
		b = message(b, 2, o)
	}
	return number(b, 5, id)
}

func program(entry uint64, computations ...[]byte) pjrt.Program {
	var b []byte
	for _, c := range computations {
		b = message(b, 3, c)
	}
	return pjrt.Program{Code: number(b, 6, entry), Format: pjrt.FormatHLO}
}

// grouped returns replica groups as a list.
func grouped(groups ...[]uint64) []byte {
	var list []byte
	for _, g := range groups {
		list = message(list, 1, packed(nil, 1, g...))
	}
	return message(nil, 87, list)
}

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
		"nothing":          {Format: pjrt.FormatHLO},
		"no entry":         program(7, computation(1)),
		"noise":            {Format: pjrt.FormatHLO, Code: []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")},
		"cut":              {Format: pjrt.FormatHLO, Code: in(nil).Code[:9]},
		"cut config":       {Format: pjrt.FormatHLOWithConfig, Code: []byte{0x0a, 0x7f}},
		"no groups":        in(message(nil, 92, iota(0, 2, nil, nil))),
		"many groups":      in(message(nil, 92, iota(1<<40, 1<<40, nil, nil))),
		"a wrong shape":    in(message(nil, 92, iota(2, 2, []uint64{3}, []uint64{0}))),
		"a zero shape":     in(message(nil, 92, iota(2, 2, []uint64{0}, []uint64{0}))),
		"a wrong perm":     in(message(nil, 92, iota(2, 2, []uint64{2, 2}, []uint64{0, 0}))),
		"a perm too far":   in(message(nil, 92, iota(2, 2, []uint64{2, 2}, []uint64{0, 9}))),
		"a far device":     in(grouped([]uint64{1 << 40})),
		"a deep shape":     program(1, computation(1, op(1, "tuple", deep, nil))),
		"an axis too far":  in(message(nil, 93, message(message(nil, 1, message(nil, 1, number(nil, 2, 2))), 2, number(nil, 1, 9)))),
		"an axis of zero":  in(message(nil, 93, message(nil, 1, message(nil, 1, number(nil, 2, 0))))),
		"an uneven part":   in(message(nil, 93, message(message(nil, 1, message(nil, 1, number(nil, 2, 6))), 2, message(nil, 2, number(number(nil, 1, 4), 2, 2))))),
		"a part of zero":   in(message(nil, 93, message(message(nil, 1, message(nil, 1, number(nil, 2, 6))), 2, message(nil, 2, nil)))),
		"damaged operands": program(1, computation(1, message(nil, 36, []byte{0x80}))),
	} {
		_, err := parseProgram(p)
		require.ErrorIs(t, err, ErrProgram, name)
	}
	_, err := parseProgram(pjrt.Program{Format: "mlir"})
	require.ErrorContains(t, err, "mlir")
	// Recursive computations must not hang.
	loop := program(1, computation(1, op(1, "call", floats(1), nil, packed(nil, 38, 1, 1, 1))))
	assert.Empty(t, find(t, loop, 1, 1))
}

func FuzzParseProgram(f *testing.F) {
	f.Add(program(1, computation(1, op(1, "parameter", floats(4), nil), op(2, "all-reduce", floats(4), []uint64{1}, grouped([]uint64{0, 1})))).Code)
	f.Add(program(1, computation(1, op(1, "while", floats(4), nil, packed(nil, 38, 1)))).Code)
	f.Add([]byte{0x0a, 0x00})
	f.Add(loop([][]byte{integer(302, 27), op(309, "compare", number(nil, 2, 1), []uint64{301, 302}, message(nil, 63, []byte("LT")))},
		[][]byte{integer(204, 1), op(208, "add", scalar, []uint64{201, 204})}).Code)
	pairs, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 2})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, format := range []string{pjrt.FormatHLO, pjrt.FormatHLOWithConfig} {
			m, err := parseProgram(pjrt.Program{Code: code, Format: format})
			if err != nil {
				continue
			}
			for _, c := range m.counted(pairs, nil).collectives() {
				if c.Count < 1 || c.GroupSize < 1 || c.Bytes < 0 || c.Moved < 0 {
					t.Fatalf("%+v", c)
				}
			}
			r := &Report{Target: Target{Name: "v5e:2x2"}, Replicas: 2, LogicalDevices: 2}
			r.addCollectives(m, pairs)
			_, worker := m.worked(r.Target, false, machineOf(t, r.Target.Name))
			if r.addSchedule(m, worker); r.Schedule != nil && r.Schedule.Peak < 0 {
				t.Fatalf("%+v", r.Schedule)
			}
			if w := m.work(Target{PeakFLOPS: 1, HBMBandwidth: 1}, false, nil); w.flops < 0 || w.seconds < 0 || w.traffic.bytes < 0 {
				t.Fatalf("%+v", w)
			}
		}
	})
}
