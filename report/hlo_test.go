package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/pjrt"
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

// scalar is the shape of an s32, and integer a constant of it.
var scalar = number(nil, 2, 4)

func integer(id, n uint64) []byte {
	return op(id, "constant", scalar, nil, message(nil, 8, packed(nil, 4, n)))
}

// loop is a program of a loop over a counter, which begins at 3 and is moved by the
// operation step in the body, beside an all-reduce of 16 bytes.
func loop(condition, step [][]byte, init ...[]byte) pjrt.Program {
	state := message(message(nil, 4, scalar), 4, floats(4))
	element := func(id, of, k uint64, shape []byte) []byte {
		return op(id, "get-tuple-element", shape, []uint64{of}, number(nil, 13, k))
	}
	body := append([][]byte{op(200, "parameter", state, nil), element(201, 200, 0, scalar), element(202, 200, 1, floats(4)),
		op(203, "all-reduce", floats(4), []uint64{202}, grouped([]uint64{0, 1}))}, step...)
	body = append(body, op(209, "tuple", state, []uint64{208, 203}))
	cond := append([][]byte{op(300, "parameter", state, nil), element(301, 300, 0, scalar)}, condition...)
	if init == nil {
		init = [][]byte{integer(101, 3)}
	}
	main := append(init, op(102, "parameter", floats(4), nil), op(103, "tuple", state, []uint64{101, 102}),
		op(104, "while", state, []uint64{103}, packed(nil, 38, 2, 3)))
	return program(1, number(computation(1, main...), 6, 104), number(computation(2, body...), 6, 209), number(computation(3, cond...), 6, 309),
		number(computation(4, op(400, "parameter", scalar, nil), integer(401, 2), op(402, "add", scalar, []uint64{400, 401})), 6, 402))
}

func TestRoundsAreReadFromALoopsCondition(t *testing.T) {
	compare := func(direction string, left, right uint64) []byte {
		return op(309, "compare", number(nil, 2, 1), []uint64{left, right}, message(nil, 63, []byte(direction)))
	}
	minus := ^uint64(0) // -1
	one := [][]byte{integer(204, 1), op(208, "add", scalar, []uint64{201, 204})}
	for name, c := range map[string]struct {
		p    pjrt.Program
		want int // -1 is not known
	}{
		"less than":            {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, one), 24},
		"at most":              {loop([][]byte{integer(302, 27), compare("LE", 301, 302)}, one), 25},
		"the limit first":      {loop([][]byte{integer(302, 27), compare("GT", 302, 301)}, one), 24},
		"not equal":            {loop([][]byte{integer(302, 27), compare("NE", 301, 302)}, one), 24},
		"an offset":            {loop([][]byte{integer(302, 27), integer(303, 2), op(304, "add", scalar, []uint64{301, 303}), compare("LT", 304, 302)}, one), 22},
		"downwards":            {loop([][]byte{integer(302, minus-6), compare("GT", 301, 302)}, [][]byte{integer(204, 5), op(208, "subtract", scalar, []uint64{201, 204})}), 2},
		"by twos, in a fusion": {loop([][]byte{integer(302, 10), compare("LT", 301, 302)}, [][]byte{op(208, "fusion", scalar, []uint64{201}, packed(nil, 38, 4))}), 4},
		"a copied counter":     {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, [][]byte{op(205, "copy", scalar, []uint64{201}), integer(204, 1), op(208, "add", scalar, []uint64{205, 204})}), 24},
		"no round":             {loop([][]byte{integer(302, 3), compare("LT", 301, 302)}, one), 0},
		"an unknown limit":     {loop([][]byte{op(302, "custom-call", scalar, nil), compare("LT", 301, 302)}, one), -1},
		"an unknown start":     {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, one, op(101, "parameter", scalar, nil, number(nil, 9, 1))), -1},
		"a counter that stays": {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, [][]byte{integer(204, 0), op(208, "add", scalar, []uint64{201, 204})}), -1},
		"the wrong way":        {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, [][]byte{integer(204, minus), op(208, "add", scalar, []uint64{201, 204})}), -1},
		"past it":              {loop([][]byte{integer(302, 4), compare("NE", 301, 302)}, [][]byte{integer(204, 2), op(208, "add", scalar, []uint64{201, 204})}), -1},
		"another comparison":   {loop([][]byte{integer(302, 27), compare("EQ", 301, 302)}, one), -1},
		"nothing":              {loop(nil, nil), -1},
	} {
		all := find(t, c.p, 2, 1)
		if c.want == 0 {
			assert.Empty(t, all, name)
			continue
		}
		require.Len(t, all, 1, name)
		assert.Equal(t, c.want < 0, all[0].InLoop, name)
		assert.Equal(t, max(c.want, 1), all[0].Count, name)
		assert.EqualValues(t, 16*max(c.want, 1), all[0].Bytes, name)
	}
}

func TestWorkCountsRoundsPartsAndTheMainMemory(t *testing.T) {
	target := Target{PeakFLOPS: 100, HBMBandwidth: 10}
	// Ten rounds of a product of 2x3 and 3x4, of which the right operand is cut out of
	// a stack of 8 in a fusion, and the left one lies in another memory.
	near := message(floats(2, 3), 5, number(nil, 8, 1))
	body := number(computation(2,
		op(20, "parameter", near, nil), op(21, "parameter", floats(8, 3, 4), nil, number(nil, 9, 1)),
		op(22, "fusion", floats(2, 4), []uint64{20, 21}, packed(nil, 38, 3)),
		op(23, "all-reduce", floats(2, 4), []uint64{22}, grouped([]uint64{0, 1})),
	), 6, 22)
	fused := number(computation(3,
		op(30, "parameter", near, nil), op(31, "parameter", floats(8, 3, 4), nil, number(nil, 9, 1)),
		op(32, "dynamic-slice", floats(1, 3, 4), []uint64{31}), op(33, "bitcast", floats(3, 4), []uint64{32}),
		op(34, "dot", floats(2, 4), []uint64{30, 33}, message(nil, 30, packed(nil, 1, 1))),
	), 6, 34)
	known := message(nil, 43, []byte(`{"known_trip_count":{"n":"10"}}`))
	m, err := parseProgram(program(1, body, fused, computation(1, op(10, "parameter", floats(1), nil),
		op(11, "while", floats(1), []uint64{10}, packed(nil, 38, 2), known))))
	require.NoError(t, err)
	all := m.work(target, false)
	assert.Equal(t, 10*(2.0*2*3*4+8), all.flops, "products and the sums of the all-reduce")
	assert.Equal(t, traffic{bytes: 10 * (24 + 48 + 32 + 64), main: 10 * (48 + 32 + 64)}, all.traffic)
	assert.InDelta(t, 10*(48+32)/10.0, all.seconds, 1e-9, "the fusion is bound by its traffic with the main memory")
	assert.Equal(t, 10.0, all.untimed)
	assert.Zero(t, all.loops)
	once := m.work(target, true)
	assert.Equal(t, 56.0, once.flops)
	assert.Equal(t, 1.0, once.untimed)
}

func TestAConvolutionCountsWhatLiesInside(t *testing.T) {
	for want, w := range map[float64]windowDim{
		3 * 6: {size: 3, stride: 1, dilation: 1, base: 1}, 3*8 - 2: {size: 3, stride: 1, low: 1, dilation: 1, base: 1},
		4: {size: 1, stride: 1, dilation: 1, base: 2, low: 0},
	} {
		out := map[float64]int64{18: 6, 22: 8, 4: 8}[want]
		assert.Equal(t, want, w.inside(8, out), "%+v", w)
	}
	p := hloProduct{inputFeature: 3, outputFeature: 3, inputSpatial: []uint64{1, 2}, outSpatial: []uint64{1, 2},
		window: []windowDim{{3, 1, 0, 1, 1}, {3, 1, 0, 1, 1}}}
	assert.Equal(t, 2.0*2*6*6*4*3*9, p.convolution(hloShape{dims: []uint64{2, 8, 8, 3}}, hloShape{}, hloShape{dims: []uint64{2, 6, 6, 4}}))
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
	f.Add(loop([][]byte{integer(302, 27), op(309, "compare", number(nil, 2, 1), []uint64{301, 302}, message(nil, 63, []byte("LT")))},
		[][]byte{integer(204, 1), op(208, "add", scalar, []uint64{201, 204})}).Code)
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, format := range []string{pjrt.FormatHLO, pjrt.FormatHLOWithConfig} {
			m, err := parseProgram(pjrt.Program{Code: code, Format: format})
			if err != nil {
				continue
			}
			for _, c := range m.collectives(2, 2) {
				if c.Count < 1 || c.GroupSize < 1 || c.Bytes < 0 || c.Moved < 0 {
					t.Fatalf("%+v", c)
				}
			}
			if w := m.work(Target{PeakFLOPS: 1, HBMBandwidth: 1}, false); w.flops < 0 || w.seconds < 0 || w.traffic.bytes < 0 {
				t.Fatalf("%+v", w)
			}
		}
	})
}
