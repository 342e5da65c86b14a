package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"tpustrategy/pjrt"
)

// The tests write programs as compilers do: messages of numbered fields.

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

// floats is the shape of an array of f32.
func floats(dims ...uint64) []byte { return packed(number(nil, 2, 11), 3, dims...) }

// op is an instruction.
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

// grouped are replica groups one by one.
func grouped(groups ...[]uint64) []byte {
	var list []byte
	for _, g := range groups {
		list = message(list, 1, packed(nil, 1, g...))
	}
	return message(nil, 87, list)
}

func find(t *testing.T, p pjrt.Program, replicas, perReplica int) []Collective {
	t.Helper()
	m, err := parseProgram(p)
	require.NoError(t, err)
	return m.collectives(replicas, perReplica)
}

func TestCollectivesAreCountedWithTheirAxisAndBytes(t *testing.T) {
	across, within := grouped([]uint64{0, 2}, []uint64{1, 3}), grouped([]uint64{0, 1}, []uint64{2, 3})
	pairs := message(message(nil, 52, number(number(nil, 1, 0), 2, 1)), 52, number(number(nil, 1, 1), 2, 0))
	p := program(1, computation(1,
		op(10, "parameter", floats(8, 4), nil),
		op(11, "all-reduce", floats(8, 4), []uint64{10}, across),
		op(12, "all-reduce-start", floats(8, 4), []uint64{10, 11}, across),
		op(13, "all-reduce-done", floats(8, 4), []uint64{12}),
		op(14, "all-gather", floats(16, 4), []uint64{10}, within),
		op(15, "reduce-scatter", floats(4, 4), []uint64{10}, within),
		op(16, "all-to-all", floats(8, 4), []uint64{10}),
		op(17, "collective-permute", floats(8, 4), []uint64{10}, pairs),
		op(18, "all-reduce", floats(8, 4), []uint64{10}, grouped([]uint64{0}, []uint64{1}, []uint64{2}, []uint64{3})),
		op(19, "send", floats(8, 4), []uint64{10}),
		op(20, "send", floats(8, 4), []uint64{10}, number(nil, 47, 1)),
		op(21, "add", floats(8, 4), []uint64{10, 10}),
		op(22, "send", floats(8, 4), []uint64{10}, number(nil, 47, 1), message(nil, 68, []byte("handler xla_megascale_runtime"))),
	))
	assert.ElementsMatch(t, []Collective{
		{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 2, Bytes: 384, Moved: 384},
		{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
		{Kind: "reduce-scatter", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 128, Moved: 64},
		{Kind: "all-to-all", Axis: "replica+logical", GroupSize: 4, Count: 1, Bytes: 128, Moved: 96},
		{Kind: "collective-permute", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
		{Kind: "send", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
		{Kind: "send", Axis: "slices", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
	}, find(t, p, 2, 2))
}

func TestCollectivesInLoopsAndCallsAreCountedAsOftenAsTheyRun(t *testing.T) {
	all := grouped([]uint64{0, 1})
	known := message(nil, 43, []byte(`{"known_trip_count":{"n":"10"},"x":1}`))
	body := func(id uint64) []byte {
		return computation(id, op(100*id, "parameter", floats(4), nil), op(100*id+1, "all-reduce", floats(4), []uint64{100 * id}, all))
	}
	calls := func(ids ...uint64) []byte { return packed(nil, 38, ids...) }
	p := program(1, body(2), body(3), body(4), computation(1,
		op(10, "parameter", floats(4), nil),
		op(11, "while", floats(4), []uint64{10}, calls(2), known),
		op(12, "async-start", floats(4), []uint64{10}, calls(3)),
		op(13, "async-done", floats(4), []uint64{12}, calls(3)),
		op(14, "fusion", floats(4), []uint64{10}, calls(3)),
	))
	assert.Equal(t, []Collective{{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 12, Bytes: 192, Moved: 192}}, find(t, p, 2, 1))
	p = program(1, body(2), computation(1, op(10, "parameter", floats(4), nil), op(11, "while", floats(4), []uint64{10}, calls(2))))
	assert.Equal(t, []Collective{{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 1, Bytes: 16, Moved: 16, InLoop: true}}, find(t, p, 2, 1))
}

func TestGroupsAreReadInEveryForm(t *testing.T) {
	iota := func(count, size uint64, reshape, perm []uint64) []byte {
		return packed(packed(number(number(nil, 1, count), 2, size), 3, reshape...), 4, perm...)
	}
	axis := func(size uint64) []byte { return message(nil, 1, number(message(nil, 1, []byte("a")), 2, size)) }
	mesh := func(refs [][]byte, axes ...[]byte) []byte {
		var m []byte
		for _, a := range axes {
			m = append(m, a...)
		}
		b := message(nil, 1, m)
		for _, r := range refs {
			b = message(b, 2, r)
		}
		return b
	}
	part := func(axis, pre, size uint64) []byte {
		return message(number(nil, 1, axis), 2, number(number(nil, 1, pre), 2, size))
	}
	for name, c := range map[string]struct {
		field []byte
		want  [][]int
	}{
		"one by one":        {grouped([]uint64{0, 2}, []uint64{1, 3}), [][]int{{0, 2}, {1, 3}}},
		"the old field":     {message(message(nil, 49, packed(nil, 1, 0, 1)), 49, packed(nil, 1, 2, 3)), [][]int{{0, 1}, {2, 3}}},
		"an iota":           {message(nil, 92, iota(2, 2, []uint64{4}, []uint64{0})), [][]int{{0, 1}, {2, 3}}},
		"a transposed iota": {message(nil, 92, iota(2, 2, []uint64{2, 2}, []uint64{1, 0})), [][]int{{0, 2}, {1, 3}}},
		"an iota in a list": {message(nil, 87, message(nil, 2, iota(1, 4, []uint64{4}, []uint64{0}))), [][]int{{0, 1, 2, 3}}},
		"three axes":        {message(nil, 92, iota(4, 2, []uint64{2, 2, 2}, []uint64{0, 2, 1})), [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
		"a mesh's axis":     {message(nil, 93, mesh([][]byte{number(nil, 1, 0)}, axis(2), axis(2))), [][]int{{0, 2}, {1, 3}}},
		"both axes":         {message(nil, 93, mesh([][]byte{nil, number(nil, 1, 1)}, axis(2), axis(2))), [][]int{{0, 1, 2, 3}}},
		"part of an axis":   {message(nil, 93, mesh([][]byte{part(0, 1, 2)}, axis(4))), [][]int{{0, 2}, {1, 3}}},
		"the other part":    {message(nil, 93, mesh([][]byte{part(0, 2, 2)}, axis(4))), [][]int{{0, 1}, {2, 3}}},
	} {
		i, err := parseInstruction(op(1, "all-reduce", floats(1), nil, c.field))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, i.groups, name)
	}
	unordered := message(mesh([][]byte{nil}, axis(2)), 1, message(nil, 2, []byte{1, 0}))
	i, err := parseInstruction(op(1, "all-reduce", floats(1), nil, message(nil, 93, unordered)))
	require.NoError(t, err)
	assert.True(t, i.unreadable)
}

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
	// Computations that call each other end, too.
	loop := program(1, computation(1, op(1, "call", floats(1), nil, packed(nil, 38, 1, 1, 1))))
	assert.Empty(t, find(t, loop, 1, 1))
}

func TestBytesOfShapes(t *testing.T) {
	for want, shape := range map[int64][]byte{
		0: nil, 128: floats(8, 4), 4: floats(), 12: packed(number(nil, 2, 16), 3, 6), 3: packed(number(nil, 2, 21), 3, 5),
		132: message(message(nil, 4, floats(8, 4)), 4, floats()),
	} {
		s, err := parseShape(shape, 0)
		require.NoError(t, err)
		assert.Equal(t, want, s.bytes())
	}
	huge, err := parseShape(floats(1<<40, 1<<40, 1<<40), 0)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, huge.bytes(), int64(0))
}

func FuzzParseProgram(f *testing.F) {
	f.Add(program(1, computation(1, op(1, "parameter", floats(4), nil), op(2, "all-reduce", floats(4), []uint64{1}, grouped([]uint64{0, 1})))).Code)
	f.Add(program(1, computation(1, op(1, "while", floats(4), nil, packed(nil, 38, 1)))).Code)
	f.Add([]byte{0x0a, 0x00})
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, format := range []string{pjrt.FormatHLO, pjrt.FormatHLOWithConfig} {
			m, err := parseProgram(pjrt.Program{Code: code, Format: format})
			if err != nil {
				continue
			}
			for _, c := range m.collectives(2, 2) {
				if c.Count < 1 || c.GroupSize < 1 {
					t.Fatalf("%+v", c)
				}
			}
		}
	})
}
