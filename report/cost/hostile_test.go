package cost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// sane fails the test if a figure of a prediction is not a valid time.
func sane(t *testing.T, p *Prediction) {
	t.Helper()
	for _, x := range []float64{p.Seconds, p.Products, p.Closed, p.Memory, p.Interconnect.Exposed, p.Interconnect.Hidden,
		p.Network.Exposed, p.Network.Hidden} {
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			t.Fatalf("%+v", p)
		}
	}
	for _, u := range p.Unknown {
		if u.Count < 1 {
			t.Fatalf("%+v", u)
		}
	}
	_, err := json.Marshal(p)
	require.NoError(t, err)
}

func TestHostileProgramsArePredictedOrRefused(t *testing.T) {
	huge := ^uint64(0)
	one := func(more ...[]byte) pjrt.Program {
		return program(1, computation(1, op(1, "parameter", floats(64, 64), nil), op(2, "dot", floats(64, 64), []uint64{1, 1},
			append(more, dot)...)))
	}
	sum := func(more ...[]byte) pjrt.Program {
		return program(1, computation(1, op(1, "parameter", floats(64), nil), op(2, "all-reduce", floats(64), []uint64{1},
			more...)))
	}
	pairs := func(a, b uint64) []byte {
		return message(nil, 52, number(number(nil, 1, a), 2, b))
	}
	permute := func(more ...[]byte) pjrt.Program {
		return program(1, computation(1, op(1, "parameter", floats(64), nil), op(2, "collective-permute", floats(64),
			[]uint64{1}, more...)))
	}
	rounds := func(n string) pjrt.Program {
		return program(1, computation(2, op(20, "copy", floats(64), nil), op(21, "custom-call", floats(64), nil)),
			computation(1, op(1, "while", floats(64), nil, packed(nil, 38, 2),
				message(nil, 43, []byte(`{"known_trip_count":{"n":"`+n+`"}}`)))))
	}
	assignment := func(ids ...uint64) []byte {
		var b []byte
		for _, id := range ids {
			b = message(b, 3, packed(nil, 1, id))
		}
		return message(nil, 15, b)
	}
	for name, c := range map[string]struct {
		p       pjrt.Program
		unknown string // an operation without a known time
		refused error
	}{
		"nothing": {p: pjrt.Program{Format: pjrt.FormatHLO}, refused: hlo.ErrProgram},
		"noise": {p: pjrt.Program{Format: pjrt.FormatHLO, Code: []byte("\xff\xff\xff\xff\xff")},
			refused: hlo.ErrProgram},
		"another form":           {p: pjrt.Program{Format: "mlir"}, refused: errors.ErrUnsupported},
		"another compiler's":     {p: one(message(nil, 43, []byte(`{"outer_dimension_partitions":["2"]}`)))},
		"no configuration":       {p: one()},
		"an empty configuration": {p: one(message(nil, 43, nil))},
		"negative cycles":        {p: one(cycles(-5))},
		"huge cycles":            {p: one(cycles("999999999999999999999999999999999"))},
		"more cycles than days":  {p: one(cycles(math.MaxInt64))},
		"cycles that are words":  {p: one(cycles("many"))},
		"cycles cut off":         {p: one(message(nil, 43, []byte(`{"estimated_cycles":"12`)))},
		"cycles without digits":  {p: one(message(nil, 43, []byte(`{"estimated_cycles":"`)))},
		"no rounds":              {p: rounds("0")},
		"absurd rounds":          {p: rounds("999999999"), unknown: "custom-call "},
		"rounds that are not known": {p: program(1, computation(2, op(20, "copy", floats(64), nil)),
			computation(1, op(1, "while", floats(64), nil, packed(nil, 38, 2)))), unknown: "rounds of a loop but one"},
		"a loop of itself": {p: program(1, computation(1, op(1, "while", floats(64), nil,
			packed(nil, 38, 1, 1), message(nil, 43, []byte(`{"known_trip_count":{"n":"999999999"}}`)))))},
		"a call of itself": {p: program(1, computation(1, op(1, "call", floats(64), nil,
			packed(nil, 38, 1, 1, 1))))},
		"a custom call of itself": {p: program(1, computation(1, op(1, "custom-call", floats(64), nil,
			packed(nil, 38, 1)))), unknown: "custom-call "},
		"a fusion of itself": {p: program(1, computation(1, op(1, "fusion", floats(64), nil,
			packed(nil, 38, 1))))},
		"a start without an end": {p: program(1, computation(1, op(1, "parameter", floats(64), nil),
			op(2, "copy-start", floats(64), []uint64{1})))},
		"an end without a start": {p: program(1, computation(1, op(1, "parameter", floats(64), nil),
			op(2, "copy-done", floats(64), []uint64{1})))},
		"an end of itself": {p: program(1, computation(1, op(1, "async-done", floats(64), []uint64{1})))},
		"an end before its start": {p: in(program(1, computation(1, op(1, "parameter", floats(64), nil),
			op(2, "copy-start", floats(64), []uint64{1}), op(3, "copy-done", floats(64), []uint64{2}))), schedule(1, 3, 2, 1))},
		"a schedule of others": {p: in(one(), schedule(9, 1, 2), schedule(1, 7, 7, 2, 2))},
		"a schedule of noise":  {p: in(one(), message(nil, 7, []byte{0x0a, 0x7f})), refused: hlo.ErrProgram},
		"operands that are not there": {p: program(1, computation(1, op(1, "dot", floats(64, 64), []uint64{huge, 77},
			dot)))},
		"a product of no dimensions": {p: program(1, computation(1, op(1, "dot", floats(), nil, dot)))},
		"a product of nothing":       {p: program(1, computation(1, op(1, "dot", floats(0, 0), nil, dot)))},
		"a vast product": {p: program(1, computation(1, op(1, "parameter", floats(huge, huge), nil),
			op(2, "dot", floats(huge, huge, huge), []uint64{1, 1}, dot)))},
		"a vast collective": {p: program(1, computation(1, op(1, "parameter", floats(huge, huge, huge), nil),
			op(2, "all-reduce", floats(huge), []uint64{1})))},
		"a group of one":             {p: sum(grouped([]uint64{0}))},
		"an empty group":             {p: sum(grouped(nil))},
		"a group of one, twice":      {p: sum(grouped([]uint64{1, 1}))},
		"a device that is not there": {p: sum(grouped([]uint64{0, 9999})), unknown: "all-reduce"},
		"groups that are not read": {p: sum(message(nil, 93, message(nil, 1, number(nil, 2, 5)))),
			unknown: "all-reduce"},
		"devices that are not there":    {p: in(sum(grouped([]uint64{0, 1})), assignment(700, 900)), unknown: "all-reduce"},
		"fewer devices than partitions": {p: in(sum(grouped([]uint64{0, 3})), assignment(0)), unknown: "all-reduce"},
		"devices of far slices":         {p: in(sum(grouped([]uint64{0, 1})), assignment(100_000, 900_001))},
		"no assignment":                 {p: in(sum(), message(nil, 15, nil))},
		"no pairs":                      {p: permute()},
		"a pair of one":                 {p: permute(pairs(1, 1))},
		"a pair that is not there":      {p: permute(pairs(0, 999)), unknown: "collective-permute"},
		"a transfer of the host": {p: program(1, computation(1, op(1, "send", floats(8), nil, number(nil, 47, 1)))),
			unknown: "send of the host"},
		"a name that is no text": {p: program(1, computation(1, op(1, "custom-call", floats(8), nil,
			message(nil, 28, []byte{0xff, 0xfe})))), unknown: "custom-call \ufffd"},
		"an operation nobody knows": {p: program(1, computation(1, op(1, "frobnicate", floats(64, 64), nil)))},
		"a transfer of no kind of slices": {p: program(1, computation(1, op(1, "recv", floats(8), nil,
			message(nil, 68, []byte("xla_megascale_runtime")))))},
	} {
		for _, target := range []string{"v5e:2x2", "tpu7x:2x2x1", "v2-8", "2x v6e-256"} {
			p, err := predict(c.p, target)
			if c.refused != nil {
				require.ErrorIs(t, err, c.refused, name)
				continue
			}
			require.NoError(t, err, name)
			sane(t, p)
			if c.unknown != "" && target == "v5e:2x2" {
				require.NotEmpty(t, p.Unknown, name)
				assert.Equal(t, c.unknown, p.Unknown[0].Operation, name)
			}
		}
	}
	for _, target := range []string{"", "gpu", "v5e", "v5e:3x3x3x3", "0x v5e:4x4", "v99:2x2",
		fmt.Sprint(bytes.Repeat([]byte("v"), 1<<16))} {
		_, err := predict(one(), target)
		require.ErrorIs(t, err, errors.ErrUnsupported, target)
	}
}

func FuzzPredict(f *testing.F) {
	f.Add(program(1, computation(1, op(1, "parameter", floats(64, 64), nil), op(2, "dot", floats(64, 64), []uint64{1, 1},
		dot, cycles(77)))).Code, "v5e:2x2")
	f.Add(in(program(1, computation(1, op(1, "parameter", floats(4), nil), op(2, "all-gather-start", floats(4),
		[]uint64{1}, grouped([]uint64{0, 1})),
		op(3, "all-gather-done", floats(4), []uint64{2}))), schedule(1, 1, 2, 3)).Code, "tpu7x:2x2x1")
	f.Fuzz(func(t *testing.T, code []byte, target string) {
		p, err := predict(pjrt.Program{Code: code, Format: pjrt.FormatHLO}, target)
		if err == nil {
			sane(t, p)
		} else if !errors.Is(err, hlo.ErrProgram) && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
	})
}
