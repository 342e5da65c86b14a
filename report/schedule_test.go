package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/sharding"
)

const kilo = 1 << 10

// of returns an array of the given size.
func of(kib uint64) []byte { return floats(kib * kilo / 4) }

var dot = hlotest.Product()

func cycles(n int) []byte { return hlotest.Cycles(strconv.Itoa(n)) }

// in adds fields to the module of a program.
func in(p pjrt.Program, more ...[]byte) pjrt.Program {
	for _, m := range more {
		p.Code = append(p.Code, m...)
	}
	return p
}

// named returns the name of an instruction.
func named(name string) []byte { return message(nil, 1, []byte(name)) }

// scheduled returns the report of a program on a slice. variables are the names of its arguments.
func scheduled(t *testing.T, p pjrt.Program, target string, variables ...string) *Report {
	t.Helper()
	m, err := hlo.Parse(p, nil)
	require.NoError(t, err)
	r := &Report{Version: formatVersion, Step: "step", Replicas: 2, LogicalDevices: 2, Target: Target{Name: target,
		PeakFLOPS: 197e12, HBMBandwidth: 819e9}}
	for _, name := range variables {
		role := "variable"
		if !strings.HasPrefix(name, "/") {
			role = "argument"
		}
		r.Tensors = append(r.Tensors, memory.Tensor{Role: role, Name: name})
	}
	e := cost.Simulate(m, target, r.Target.PeakFLOPS, r.Target.HBMBandwidth, r.layerOf)
	r.Predicted = e.Prediction
	r.addSchedule(e, false, nil)
	require.NotNil(t, r.Schedule)
	return r
}

func inUse(all []cost.Operation) (bytes []int64) {
	for _, o := range all {
		bytes = append(bytes, o.InUse/kilo)
	}
	return bytes
}

func TestValuesLiveUntilTheyAreTakenLast(t *testing.T) {
	r := scheduled(t, program(1, number(computation(1,
		op(10, "parameter", of(100), nil, number(nil, 9, 0)),
		op(11, "add", of(8), []uint64{10}, named("first")),
		op(12, "add", of(16), []uint64{11}, named("second")),
		op(13, "bitcast", of(16), []uint64{12}),
		op(14, "add", of(4), []uint64{10}, named("third")),
		op(15, "add", of(2), []uint64{13, 14}, named("last")),
		op(16, "tuple", message(nil, 4, of(2)), []uint64{15}),
	), 6, 16)), "cpu:4", "/w")
	s := r.Schedule
	assert.Equal(t, []int64{108, 124, 120, 122}, inUse(s.Operations), "a view holds what it shows")
	assert.Equal(t, int64(124*kilo), s.Peak)
	assert.Equal(t, 1, s.PeakAt)
	assert.Equal(t, "second", s.Operations[s.PeakAt].Name)
	var at []string
	for _, v := range s.valuesAtPeak() {
		at = append(at, fmt.Sprint(v.Role, " ", v.Of, " ", v.Bytes/kilo, " ", v.From, v.To))
	}
	assert.Equal(t, []string{"variable /w 100 0 3", "temporary second 16 1 3", "temporary first 8 0 1"}, at)
	assert.Nil(t, s.Layers, "no time is predicted for it")
	assert.ErrorIs(t, r.WriteTrace(&bytes.Buffer{}), errors.ErrUnsupported)
}

// Updated variables, carried values and in-place updates use no additional memory.
func TestMemoryIsUsedAgain(t *testing.T) {
	alias := message(nil, 8, message(nil, 1, number(packed(nil, 1, 0), 2, 0)))
	pair := func(a, b []byte) []byte { return message(message(nil, 4, a), 4, b) }
	body := number(computation(2,
		op(20, "parameter", pair(of(64), of(32)), nil),
		op(21, "get-tuple-element", of(64), []uint64{20}, number(nil, 13, 0)),
		op(22, "get-tuple-element", of(32), []uint64{20}, number(nil, 13, 1)),
		op(23, "add", of(8), []uint64{22}),
		op(24, "dynamic-update-slice", of(64), []uint64{21, 23}),
		op(25, "multiply", of(32), []uint64{23}),
		op(26, "tuple", pair(of(64), of(32)), []uint64{24, 25}),
	), 6, 26)
	p := program(1, body, number(computation(1,
		op(10, "parameter", of(100), nil),
		op(11, "add", of(64), []uint64{10}),
		op(12, "add", of(32), []uint64{10}),
		op(13, "tuple", pair(of(64), of(32)), []uint64{11, 12}),
		op(14, "while", pair(of(64), of(32)), []uint64{13}, packed(nil, 38, 2),
			message(nil, 43, []byte(`{"known_trip_count":{"n":"10"}}`))),
		op(15, "get-tuple-element", of(64), []uint64{14}, number(nil, 13, 0)),
		op(16, "add", of(100), []uint64{15, 10}),
		op(17, "tuple", message(nil, 4, of(100)), []uint64{16}),
	), 6, 17))
	s := scheduled(t, in(p, alias), "cpu:4", "/w").Schedule
	assert.Equal(t, []int64{164, 196, 204, 164}, inUse(s.Operations))
	loop := s.Operations[2]
	assert.Equal(t, 10, loop.Iterations)
	assert.Equal(t, []int64{204, 204, 204}, inUse(loop.Inside))
	assert.Equal(t, []int{2, 3, 4, 5, 6}, []int{loop.Number, loop.Inside[0].Number, loop.Inside[1].Number,
		loop.Inside[2].Number, s.Operations[3].Number})
}

func TestValuesHaveTheirPaddingAndTheirMemory(t *testing.T) {
	tiled := func(space uint64) []byte {
		layout := number(message(packed(nil, 1, 1, 0), 6, packed(nil, 1, 8, 128)), 8, space)
		return message(floats(5, 130), 5, layout)
	}
	s := scheduled(t, program(1, number(computation(1, op(10, "add", tiled(0), nil), op(11, "add", tiled(1), []uint64{10}),
		op(12, "add", of(1), []uint64{11})), 6, 12)), "cpu:4").Schedule
	assert.Equal(t, []int64{8, 8, 1}, inUse(s.Operations), "8 rows of 256 floats, and none in fast memory")
}

// busy returns a step with a loop of two layers with asynchronous collectives.
func busy() pjrt.Program {
	all := grouped([]uint64{0, 1}, []uint64{2, 3})
	state := message(message(nil, 4, floats(1024, 1024)), 4, floats(1024, 1024))
	body := number(computation(2,
		op(20, "parameter", state, nil),
		op(21, "get-tuple-element", floats(1024, 1024), []uint64{20}, number(nil, 13, 0)),
		op(22, "get-tuple-element", floats(1024, 1024), []uint64{20}, number(nil, 13, 1)),
		op(23, "dot", floats(1024, 1024), []uint64{21, 22}, dot, cycles(100_000), named("product")),
		op(24, "all-reduce", floats(1024, 1024), []uint64{23}, all, named("sum")),
		op(25, "tuple", state, []uint64{24, 22}),
	), 6, 25)
	both := message(message(nil, 4, floats(1024, 1024)), 4, floats(2048, 1024))
	return program(1, body, number(computation(1,
		op(10, "parameter", floats(1024, 1024), nil, number(nil, 9, 0)),
		op(11, "parameter", floats(1024, 1024), nil, number(nil, 9, 1)),
		op(9, "parameter", floats(1024, 1024), nil, number(nil, 9, 2)),
		op(13, "copy", floats(1024, 1024), []uint64{9}, named("copy")),
		op(12, "all-gather-start", both, []uint64{11}, all, named("gather")),
		op(14, "tuple", state, []uint64{13, 10}),
		op(15, "while", state, []uint64{14}, packed(nil, 38, 2), message(nil, 43, []byte(`{"known_trip_count":{"n":"5"}}`)),
			named("loop")),
		op(16, "get-tuple-element", floats(1024, 1024), []uint64{15}, number(nil, 13, 0)),
		op(17, "all-gather-done", floats(2048, 1024), []uint64{12}, named("gathered")),
		op(18, "dot", floats(1024, 1024), []uint64{17, 16}, dot, cycles(50_000), named("head")),
	), 6, 18))
}

// The schedule contains each part of the prediction exactly once.
func TestThePartsOfAScheduleAreThePrediction(t *testing.T) {
	r := scheduled(t, busy(), "v5e:2x2", "/layer_1/up/weights", "/layer_2/head/weights", "x")
	s, p := r.Schedule, r.Predicted
	byKind, byLayer, top := map[string]float64{}, map[string]float64{}, 0.0
	for _, x := range s.Layers {
		byKind[x.Kind] += x.Seconds
		byLayer[x.Layer] += x.Seconds
	}
	for _, o := range s.Operations {
		top += o.Seconds()
	}
	assert.InEpsilon(t, p.Products, byKind["products"], 1e-9)
	assert.InEpsilon(t, p.Memory, byKind["memory"], 1e-9)
	assert.InEpsilon(t, p.Interconnect.Exposed, byKind["interconnect"], 1e-9)
	assert.InEpsilon(t, p.Seconds, top, 1e-9)
	assert.InEpsilon(t, 50_000/197e12*131072, byLayer["layer_2/head"], 1e-2,
		"the last product, of the gathered weights, and no wait")
	assert.Positive(t, byLayer[""], "the copy of the argument")
	assert.InEpsilon(t, p.Seconds, byLayer["layer_1/up"]+byLayer["layer_2/head"]+byLayer[""], 1e-9)
	var beside []string
	for _, o := range s.Operations {
		if o.Beside != nil {
			beside = append(beside, o.Name+" on "+o.Beside.On)
		}
	}
	assert.Equal(t, []string{"gather on interconnect"}, beside)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "layer_1/up")
}

func TestATraceIsThePredictedStep(t *testing.T) {
	r := scheduled(t, busy(), "v5e:2x2", "/up/weights", "/head/weights", "x")
	var b bytes.Buffer
	require.NoError(t, r.WriteTrace(&b))
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			PID, TID int
			TS, Dur  float64
			Args     map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &trace))
	core, end, rounds, products, most := 0.0, 0.0, 0, 0, 0.0
	gather, loop := [2]float64{}, [2]float64{}
	for _, e := range trace.TraceEvents {
		assert.Equal(t, 1, e.PID)
		switch {
		case e.Ph == "C":
			most = max(most, e.Args["bytes"].(float64))
		case e.Name == "gather" && e.TID == traceInterconnect:
			gather = [2]float64{e.TS, e.TS + e.Dur}
		case e.Name == "loop, 5 rounds":
			loop = [2]float64{e.TS, e.TS + e.Dur}
		case e.Name == "round 2 of 5":
			rounds++
			assert.InEpsilon(t, loop[0]+(loop[1]-loop[0])/5, e.TS, 1e-9)
		case e.Name == "product":
			products++
		}
		if e.Ph == "X" && e.TID == traceCore {
			end = max(end, e.TS+e.Dur)
			if e.Name != "product" && e.Name != "sum" && !strings.HasPrefix(e.Name, "round") {
				core += e.Dur
			}
		}
	}
	assert.InEpsilon(t, 1e6*r.Predicted.Seconds, core, 1e-9)
	assert.InEpsilon(t, 1e6*r.Predicted.Seconds, end, 1e-9)
	assert.Equal(t, []int{1, 5}, []int{rounds, products})
	assert.Equal(t, float64(r.Schedule.Peak), most)
	assert.LessOrEqual(t, gather[0], loop[0])
	assert.Less(t, gather[1], loop[1], "it is hidden behind the loop")
}

func TestManyOperationsAreJoinedAndKeepTheirSums(t *testing.T) {
	var ops [][]byte
	ops = append(ops, op(1, "parameter", of(64), nil))
	for k := range uint64(3 * maxOperations) {
		size := uint64(1)
		if k == 7777 {
			size = 5000
		}
		ops = append(ops, op(k+2, "add", of(size), []uint64{k + 1}, named(fmt.Sprint("add.", k))))
	}
	r := scheduled(t, program(1, number(computation(1, ops...), 6, 3*maxOperations+1)), "v5e:1x1", "/w")
	s := r.Schedule
	assert.Less(t, len(s.Operations), 3*maxOperations/2)
	sum, joined := 0.0, 0
	for k, o := range s.Operations {
		sum += o.Seconds()
		joined += max(o.Joined, 1)
		require.Equal(t, k, o.Number)
	}
	assert.InEpsilon(t, r.Predicted.Seconds, sum, 1e-9)
	assert.Equal(t, 3*maxOperations, joined)
	assert.Equal(t, s.Peak, s.Operations[s.PeakAt].InUse)
	assert.Contains(t, []string{"add.7777", "add.7778"}, s.Operations[s.PeakAt].Name)
	for _, v := range s.Values {
		require.Less(t, v.To, len(s.Operations))
	}
}

// The load of the links is consistent with the predicted time of a collective alone.
func TestLinksCarryWhatIsPredicted(t *testing.T) {
	line := func(from, n, stride int) (group []uint64) {
		for k := range n {
			group = append(group, uint64(from+k*stride))
		}
		return group
	}
	rows := func(n, width int) (groups [][]uint64) {
		for y := range n {
			groups = append(groups, line(y*width, width, 1))
		}
		return groups
	}
	columns := func(n, width int) (groups [][]uint64) {
		for x := range width {
			groups = append(groups, line(x, n, width))
		}
		return groups
	}
	for name, c := range map[string]struct {
		slice, kind string
		groups      [][]uint64
		pairs       [][2]uint64
		partitions  int
	}{
		"rows of a mesh":     {slice: "v5e:8x8", kind: "all-reduce", groups: rows(8, 8), partitions: 64},
		"columns of a torus": {slice: "v5e:16x16", kind: "all-gather", groups: columns(16, 16), partitions: 256},
		"all of a torus": {slice: "v5e:16x16", kind: "reduce-scatter", groups: [][]uint64{line(0, 256, 1)},
			partitions: 256},
		"every other": {slice: "v5e:8x8", kind: "all-reduce", groups: [][]uint64{line(0, 4, 2), line(1, 4, 2)},
			partitions: 64},
		"all of a cube": {slice: "v5p:4x4x4", kind: "all-reduce", groups: [][]uint64{line(0, 64, 1)},
			partitions: 64},
		"across a line": {slice: "v5e:8x8", kind: "all-to-all", groups: rows(8, 8), partitions: 64},
		"to the neighbour": {slice: "v5e:8x8", kind: "collective-permute", pairs: [][2]uint64{{0, 1}, {1, 2}, {2, 0}},
			partitions: 64},
		"two cores of each chip": {slice: "tpu7x:2x2x1", kind: "all-reduce", groups: [][]uint64{{0, 2, 4, 6}, {1, 3, 5, 7}},
			partitions: 8},
		"all cores of four chips": {slice: "tpu7x:2x2x1", kind: "all-gather", groups: [][]uint64{line(0, 8, 1)},
			partitions: 8},
	} {
		more := grouped(c.groups...)
		if c.pairs != nil {
			more = nil
			for _, p := range c.pairs {
				more = message(more, 52, number(number(nil, 1, p[0]), 2, p[1]))
			}
		}
		module, err := hlo.Parse(program(1, computation(1, op(10, "parameter", floats(1<<28), nil),
			op(11, c.kind, floats(1<<28), []uint64{10}, more))), nil)
		require.NoError(t, err)
		r := &Report{Target: Target{Name: c.slice}, Replicas: c.partitions, LogicalDevices: 1}
		mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: c.partitions})
		require.NoError(t, err)
		r.addCollectives(countCollectives(module, mesh), nil)
		require.NotNil(t, r.Torus, name)
		require.Len(t, r.Torus.Groups, 1, name)
		assert.Equal(t, c.pairs != nil, r.Torus.Groups[0].Pairs, name)
		assert.Len(t, r.Torus.Places, c.partitions, name)
		most := int64(0)
		for _, l := range r.Torus.Links {
			most = max(most, l.Bytes, l.Back)
		}
		e, err := cost.Predict(module, c.slice)
		require.NoError(t, err)
		constants := map[string]float64{}
		for _, x := range e.Prediction.Constants {
			constants[x.Name] = x.Value
		}
		seconds := e.Prediction.Interconnect.Exposed + e.Prediction.Interconnect.Hidden
		want := (seconds - constants["time that a collective takes to begin, seconds"]) *
			constants["rate of a link between chips, bytes a second each way"] * constants["share of the links' rate that "+
			"collectives reach"]
		assert.InEpsilon(t, want, float64(most), 0.05, name)
	}
}

func TestTensorsThatAreAlikeAreOne(t *testing.T) {
	r := &Report{}
	for k := range 24 {
		r.Tensors = append(r.Tensors, memory.Tensor{Role: "variable", Name: fmt.Sprintf("/layers_%d/up", k),
			Shape: []int{8, 8}, Shard: []int{2, 8}, BytesPerCore: 64, Annotation: "1"})
	}
	r.Tensors = append(r.Tensors, memory.Tensor{Role: "variable", Name: "/layers_24/up", Shape: []int{8, 9},
		Shard: []int{2, 9}, BytesPerCore: 72, Annotation: "1"},
		memory.Tensor{Role: "variable", Name: "/weights_1st", Shape: []int{800}, Shard: []int{800}, BytesPerCore: 3200,
			Annotation: "none"})
	var got []string
	for _, g := range r.groupTensors() {
		got = append(got, fmt.Sprintf("%d %s %v", g.Count, g.Name, g.Shape))
	}
	assert.Equal(t, []string{"1 /weights_1st [800]", "24 /layers_*/up [8 8]", "1 /layers_24/up [8 9]"}, got)
}

// Empty loops and endlessly nested loops do not produce an endless trace.
func TestTracesEnd(t *testing.T) {
	deep := []cost.Operation{{Name: "x", CoreTime: cost.CoreTime{Products: 1}}}
	for range 30 {
		deep = []cost.Operation{{Name: "loop", CoreTime: cost.CoreTime{Products: 1}, Iterations: 1 << 30, Inside: deep}}
	}
	for _, operations := range [][]cost.Operation{{{Iterations: 1 << 60, CoreTime: cost.CoreTime{Products: 1},
		Inside: []cost.Operation{}}}, deep} {
		r := &Report{Predicted: &cost.Prediction{Seconds: 1}, Schedule: &Schedule{Operations: operations}}
		var b bytes.Buffer
		require.NoError(t, r.WriteTrace(&b))
		assert.True(t, json.Valid(b.Bytes()))
	}
}

// Malformed programs have a schedule or none, without a panic and without invalid figures.
func TestSchedulesOfDamagedPrograms(t *testing.T) {
	huge := floats(1<<40, 1<<40)
	tiles := message(floats(3, 3), 5, message(packed(nil, 1, 9, 1<<60), 6, packed(nil, 1, 1<<60, 0)))
	for name, p := range map[string]pjrt.Program{
		"a loop in itself": program(1, number(computation(1, op(1, "while", of(1), []uint64{1}, packed(nil, 38, 1))), 6,
			1)),
		"a tuple of itself": program(1, number(computation(1, op(1, "tuple", message(nil, 4, of(1)), []uint64{1})), 6,
			1)),
		"more than there is": program(1, number(computation(1, op(1, "get-tuple-element", of(1), []uint64{7},
			number(nil, 13, 1<<40))), 6, 1)),
		"huge arrays": program(1, number(computation(1, op(1, "add", huge, nil), op(2, "add", huge, []uint64{1})),
			6, 2)),
		"huge tiles": program(1, number(computation(1, op(1, "add", tiles, nil)), 6, 1)),
		"a start without arrays": program(1, number(computation(1, op(1, "all-gather-start", nil, nil),
			op(2, "all-gather-done", of(4), []uint64{1}), op(3, "copy-done", of(4), []uint64{9})), 6, 3)),
		"donated to nothing": in(program(1, number(computation(1, op(1, "add", of(1), nil)), 6, 1)),
			message(nil, 8, message(nil, 1, number(packed(nil, 1, 1<<40), 2, 1<<40)))),
		"a branch of nothing": program(1, computation(1, op(1, "conditional", of(1), []uint64{4}, packed(nil, 38, 9)))),
	} {
		m, err := hlo.Parse(p, nil)
		require.NoError(t, err, name)
		r := &Report{Version: formatVersion, Replicas: 1, LogicalDevices: 1, Target: Target{Name: "v5e:1x1"}}
		e := cost.Simulate(m, "v5e:1x1", 0, 0, r.layerOf)
		r.Predicted = e.Prediction
		r.addSchedule(e, false, nil)
		data, err := json.Marshal(r)
		require.NoError(t, err, name)
		again, err := Parse(data)
		require.NoError(t, err, name)
		var b bytes.Buffer
		require.NoError(t, again.WriteText(&b), name)
		require.NoError(t, again.WriteHTML(&b), name)
		if again.Schedule != nil {
			require.NoError(t, again.WriteTrace(&b), name)
			assert.GreaterOrEqual(t, again.Schedule.Peak, int64(0), name)
			assert.False(t, math.IsNaN(again.Predicted.Seconds), name)
		}
	}
}
