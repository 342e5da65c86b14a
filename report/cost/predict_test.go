package cost

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

var (
	number, message, packed          = hlotest.Number, hlotest.Message, hlotest.Packed
	floats, op, computation, program = hlotest.Floats, hlotest.Instruction, hlotest.Computation, hlotest.Program
	grouped                          = hlotest.Groups
	dot                              = hlotest.Product()
	scalar                           = number(nil, 2, 4) // the shape of an s32
)

func cycles(n any) []byte { return hlotest.Cycles(fmt.Sprint(n)) }

// in adds fields to the module of a program.
func in(p pjrt.Program, more ...[]byte) pjrt.Program {
	for _, m := range more {
		p.Code = append(p.Code, m...)
	}
	return p
}

// schedule returns the order of a computation's instructions.
func schedule(computation uint64, ids ...uint64) []byte {
	return message(nil, 7, message(nil, 1, message(number(nil, 1, computation), 2, packed(nil, 1, ids...))))
}

func predict(p pjrt.Program, target string) (*Prediction, error) {
	parsed, err := hlo.Parse(p, nil)
	if err != nil {
		return nil, err
	}
	e, err := Predict(parsed, target)
	if err != nil {
		return nil, err
	}
	return e.Prediction, nil
}

func predicted(t *testing.T, p pjrt.Program, target string) *Prediction {
	t.Helper()
	x, err := predict(p, target)
	require.NoError(t, err)
	return x
}

func TestProductsTakeTheCompilersCyclesAsOftenAsTheyRun(t *testing.T) {
	m := newSlice("v5e:1x1")
	fused := number(computation(2, op(20, "parameter", floats(256, 256), nil), op(21, "dot", floats(256, 256),
		[]uint64{20, 20}, dot)), 6, 21)
	body := computation(3, op(30, "parameter", floats(256, 256), nil), op(31, "fusion", floats(256, 256), []uint64{30},
		packed(nil, 38, 2), cycles(1_503_000)))
	known := message(nil, 43, []byte(`{"known_trip_count":{"n":"10"}}`))
	p := predicted(t, program(1, fused, body, computation(1, op(10, "parameter", floats(256, 256), nil),
		op(11, "while", floats(256, 256), []uint64{10}, packed(nil, 38, 3), known))), "v5e:1x1")
	assert.InEpsilon(t, 10e-3, p.Products, 1e-3, "1.503 million cycles are a millisecond")
	assert.Equal(t, p.Products, p.Seconds)
	assert.Zero(t, p.Closed)
	assert.Zero(t, p.Memory)
	// Without an estimate of cycles, the time is that of the product padded to tiles, at a share of
	// the peak.
	bare := predicted(t, program(1, computation(1, op(10, "parameter", floats(4096, 4000), nil),
		op(11, "parameter", floats(4000, 4096), nil),
		op(12, "dot", floats(4096, 4096), []uint64{10, 11}, dot))), "v5e:1x1")
	assert.InEpsilon(t, 2*4096*4096*4096/(197e12*m.value(emittedShare)), bare.Products, 1e-9, "4000 is filled up to 4096")
	assert.Equal(t, bare.Products, bare.Closed)
}

func TestOtherOperationsTakeTheMemorysRateOrTheirCycles(t *testing.T) {
	m := newSlice("v6e:1x1")
	near := message(floats(1024, 1024), 5, number(nil, 8, 1))
	p := predicted(t, program(1, computation(1, op(10, "parameter", floats(1024, 1024), nil),
		op(11, "copy", floats(1024, 1024), []uint64{10}, cycles(1<<40)),
		op(12, "parameter", near, nil), op(13, "copy", near, []uint64{12}, cycles(1_751_000)))), "v6e:1x1")
	assert.InEpsilon(t, m.memorySeconds(2*4<<20)+1e-3, p.Memory, 1e-3)
	assert.Equal(t, p.Memory, p.Seconds)
}

func TestCollectivesHideBehindWhatIsScheduledBetweenThem(t *testing.T) {
	m := newSlice("v5e:2x2")
	all := grouped([]uint64{0, 1, 2, 3})
	begin := op(20, "all-gather-start", message(message(nil, 4, floats(1<<20)), 4, floats(4<<20)), []uint64{10}, all)
	end := op(21, "all-gather-done", floats(4<<20), []uint64{20})
	beside := op(30, "dot", floats(8, 8), []uint64{10, 10}, dot, cycles(100_000))
	module := program(1, computation(1, op(10, "parameter", floats(1<<20), nil), begin, end, beside))
	alone := predicted(t, in(module, schedule(1, 10, 20, 21, 30)), "v5e:2x2")
	want, known := m.groupSeconds("all-gather", 4<<20, layoutOf(m, [][3]int{{0, 0}, {1, 0}, {0, 1}, {1, 1}}), 4, false)
	require.True(t, known)
	assert.InEpsilon(t, 3*4<<20/(2*45e9)+2e-6, want, 1e-9, "of four parts three come in over two links, two hops far")
	assert.Equal(t, Overlap{Exposed: want}, alone.Interconnect)
	hidden := predicted(t, in(module, schedule(1, 10, 20, 30, 21)), "v5e:2x2")
	assert.InEpsilon(t, alone.Products, hidden.Interconnect.Hidden, 1e-9)
	assert.InEpsilon(t, want, hidden.Interconnect.Hidden+hidden.Interconnect.Exposed, 1e-9)
	assert.InEpsilon(t, alone.Seconds-alone.Products, hidden.Seconds, 1e-9)
}

func TestACollectiveInAFusionRunsBesideTheRest(t *testing.T) {
	all := grouped([]uint64{0, 1, 2, 3})
	reduce := computation(2, op(20, "parameter", floats(4<<20), nil), op(21, "all-reduce", floats(4<<20), []uint64{20},
		all), op(22, "dynamic-slice", floats(1<<20), []uint64{21}))
	scatter := predicted(t, program(1, reduce, computation(1, op(10, "parameter", floats(4<<20), nil),
		op(11, "fusion", floats(1<<20), []uint64{10}, packed(nil, 38, 2)))), "v5e:2x2")
	assert.InEpsilon(t, 12<<20/(2*45e9)+2e-6, scatter.Interconnect.Exposed+scatter.Interconnect.Hidden, 1e-9,
		"the sum of which a part is kept is scattered")
	assert.InEpsilon(t, scatter.Interconnect.Hidden, scatter.Memory, 1e-9)
}

// A device's coordinates follow from its id in libtpu's numbering.
func TestPlacesAreThoseThatLibtpuDescribes(t *testing.T) {
	files, err := filepath.Glob("../../tpu/testdata/topologies/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		var d struct {
			Name  string
			Mesh  []int
			Tasks [][][5]int // id, x, y, z, core
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &d))
		on := newSlice(d.Name)
		first := d.Tasks[0][0][0] / idsOfASlice
		for _, task := range d.Tasks {
			for _, at := range task {
				p, ok := on.position(nil, at[0])
				require.True(t, ok)
				require.Equal(t, [4]int{at[1], at[2], at[3], at[4]}, [4]int{p.chip[0] + (p.slice-first)*on.shape[0], p.chip[1],
					p.chip[2], at[0] % idsOfASlice % on.perChip}, d.Name)
			}
		}
	}
}

// layoutOf returns the layout of the first devices of some chips.
func layoutOf(m *slice, chips [][3]int) groupLayout {
	var group []int
	for _, c := range chips {
		group = append(group, ((c[2]*m.shape[1]+c[1])*m.shape[0]+c[0])*m.perChip)
	}
	return m.layout(nil, group)
}

func TestLinksAreThoseOfTheGroup(t *testing.T) {
	row := func(axis, n, stride int) (group [][3]int) {
		for k := range n {
			var chip [3]int
			chip[axis] = k * stride
			group = append(group, chip)
		}
		return group
	}
	const bytes = 1 << 30
	rate := 45e9
	for name, c := range map[string]struct {
		slice, kind string
		chips       [][3]int
		want        float64 // bytes divided by the rate of one link
	}{
		"a line":                  {"v5e:8x8", "all-reduce", row(0, 8, 1), 2 * 7.0 / 8},
		"a ring":                  {"v5e:16x16", "all-reduce", row(1, 16, 1), 2 * 15.0 / 16 / 2},
		"half of a ring":          {"v5e:16x16", "all-reduce", row(1, 8, 1), 2 * 7.0 / 8},
		"every other of a ring":   {"v5e:16x16", "reduce-scatter", row(0, 8, 2), 7.0 / 8},
		"all to all over a line":  {"v5e:8x8", "all-to-all", row(0, 8, 1), 2},
		"all to all over a ring":  {"v5e:16x16", "all-to-all", row(0, 16, 1), 2},
		"an all-gather on a line": {"v5e:8x8", "all-gather", row(0, 4, 1), 3},
		"no block":                {"v5e:8x8", "reduce-scatter", [][3]int{{0, 0}, {3, 1}, {5, 5}}, 2.0 / 3},
	} {
		m := newSlice(c.slice)
		got, known := m.groupSeconds(c.kind, bytes, layoutOf(m, c.chips), len(c.chips), false)
		require.True(t, known, name)
		assert.InEpsilon(t, c.want*bytes/rate, got, 0.01, name)
	}
}

// The compiler marks some collectives as one ring, for which a torus is no faster.
func TestOneRingUsesTwoLinks(t *testing.T) {
	gather := func(config string) pjrt.Program {
		return program(1, computation(1, op(10, "parameter", floats(1<<20), nil), op(11, "all-gather", floats(1<<28),
			[]uint64{10}, message(nil, 43, []byte(config)))))
	}
	ring := predicted(t, gather(`{"collective_algorithm_config":{"emitter":"1DAllGatherNonMajorDim"}}`),
		"v5e:16x16").Interconnect.Exposed
	torus := predicted(t, gather(`{"collective_algorithm_config":{"emitter":"RotatedPincerEmitter"}}`),
		"v5e:16x16").Interconnect.Exposed
	assert.InEpsilon(t, 2, ring/torus, 0.05)
}

func TestSeveralSlicesExchangeOverTheNetwork(t *testing.T) {
	m := newSlice("2x v6e-256")
	attributes := message(nil, 68, []byte("\n\x1c_xla_megascale_transfer_type\x12\nALL_REDUCE xla_megascale_runtime"))
	shape := message(message(nil, 4, floats(1<<28)), 4, scalar)
	p := predicted(t, program(1, computation(1, op(10, "parameter", floats(1<<28), nil),
		op(11, "send", shape, []uint64{10}, attributes, number(nil, 47, 1)),
		op(12, "recv", shape, nil, attributes, number(nil, 47, 1)), op(13, "recv-done", shape, []uint64{12}),
		op(14, "send-done", floats(1), []uint64{11}))), "2x v6e-256")
	assert.InEpsilon(t, 1<<30/m.value(networkRate), p.Network.Exposed, 1e-3)
	assert.Empty(t, p.Unknown)
}

func TestAGenerationHasOneFittedFigureForEachClassAtMost(t *testing.T) {
	for _, g := range []string{"v2:2x2", "v3:2x2", "v4:2x2x1", "v5e:1x1", "v5p:2x2x1", "v6e:1x1", "tpu7x:1x1x1"} {
		for name, c := range newSlice(g).constants {
			assert.Equal(t, name, c.Name)
			assert.NotEmpty(t, c.Source, name)
			assert.False(t, math.IsNaN(c.Value) || math.IsInf(c.Value, 0) || c.Value < 0, name)
			assert.Contains(t, []string{published, compilers, fitted, assumed}, c.Basis)
		}
	}
	for generation, classes := range fits {
		for of, c := range classes {
			assert.Contains(t, []class{ofProducts, ofMemory, ofCollectives}, of)
			assert.Equal(t, fitted, c.Basis, generation)
		}
	}
	_, err := predict(program(1, computation(1)), "cpu:8")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, _, err = system.ParseSlices("cpu:8")
	require.Error(t, err)
}

// Asynchronous copies are hidden, but main memory transfers their bytes and the core's bytes.
func TestNoPredictionIsBelowTheFloor(t *testing.T) {
	const n = 1 << 28
	near := message(floats(n), 5, number(nil, 8, 1))
	pair := number(nil, 2, 13)
	for _, part := range [][]byte{near, floats(n), floats()} {
		pair = message(pair, 4, part)
	}
	p := in(program(1, number(computation(1,
		op(10, "parameter", floats(n), nil), op(11, "parameter", floats(n), nil, number(nil, 9, 1)),
		op(12, "copy-start", pair, []uint64{10}), op(13, "negate", floats(n), []uint64{11}), op(14, "copy-done", near,
			[]uint64{12}),
	), 6, 13)), schedule(1, 10, 11, 12, 13, 14))
	m := newSlice("v5e:1x1")
	floor := 3 * 4 * n / m.value(memoryRate)
	assert.Greater(t, floor, m.memorySeconds(2*4*n), "the negation alone is shorter")
	got := predicted(t, p, "v5e:1x1")
	assert.InEpsilon(t, floor, got.Seconds, 1e-9)
	assert.InEpsilon(t, floor, got.Memory, 1e-9)

	// A compiler's estimate of cycles does not make a product faster than the published peak.
	const side = 8192
	product := program(1, number(computation(1,
		op(10, "parameter", floats(side, side), nil), op(11, "parameter", floats(side, side), nil, number(nil, 9, 1)),
		op(12, "dot", floats(side, side), []uint64{10, 11}, message(nil, 30, packed(nil, 1, 1)), cycles(1000)),
	), 6, 12))
	assert.InEpsilon(t, 2*side*side*side/m.value(peakRate), predicted(t, product, "v5e:1x1").Products, 1e-9)
}
