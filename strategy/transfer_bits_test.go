package strategy_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	loops "github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// bitsOf returns the bits of numbers that a sum with zeros would change, and of other numbers:
// zeros of both signs, subnormal numbers, infinities, and NaNs with a payload.
var bitsOf = map[dtypes.DType]any{
	dtypes.Float16: []uint16{0, 1 << 15, 1, 1<<15 | 1, 0x3ff, 0x8200, 0x400, 0x7c00, 0xfc00, 0x7e00, 0x7e5a, 0xff11,
		0x3c00, 0xbc00, 0x7bff, 0x3555},
	dtypes.BFloat16: []uint16{0, 1 << 15, 1, 1<<15 | 1, 0x7f, 0x8040, 0x80, 0x7f80, 0xff80, 0x7fc0, 0x7fda, 0xffd1, 0x3f80,
		0xbf80, 0x7f7f, 0x3eab},
	dtypes.Float32: []uint32{0, 1 << 31, 1, 1<<31 | 1, 0x7fffff, 0x80400000, 0x800000, 0x7f800000, 0xff800000, 0x7fc00000,
		0x7fc12345, 0xffd54321,
		0x3f800000, 0xbf800000, 0x7f7fffff, 0x3eaaaaab},
	dtypes.Float64: []uint64{0, 1 << 63, 1, 1<<63 | 1, 1<<52 - 1, 1<<63 | 1<<51, 1 << 52, 0x7ff << 52, 0xfff << 52,
		0x7ff8 << 48, 0x7ff8123456789abc, 0xfffaaaaaaaaaaaaa,
		0x3ff << 52, 0xbff << 52, 0x7fefffffffffffff, 0x3fd5555555555555},
	dtypes.Int32: []uint32{0, 1, 1 << 31, math.MaxUint32, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18},
	dtypes.Int8:  []uint8{0, 1, 1 << 7, math.MaxUint8, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18},
	dtypes.Int64: []uint64{0, 1, 1 << 63, math.MaxUint64, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18},
}

// crossings transfer a value, or its negative, between devices. Each returns x or minus x.
func crossings(rc *strategy.ReplicaContext, p int, x *graph.Node) map[string]*graph.Node {
	last := p - 1
	all := map[string]*graph.Node{
		"on":     logical.OnDevice(last, x, minus),
		"assign": logical.Assign(minus(x), last),
		"loop": loops.Run(nil, 3, loops.Arguments{Carried: []*graph.Node{x}}, func(l *loops.Layer) loops.Results {
			return loops.Results{Carried: []*graph.Node{logical.OnDevice(last, l.Carried[0], minus)}}
		}, loops.Options{}).Carried[0],
		"block": remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return logical.OnDevice(last, x, minus) }),
		"manual": manual.Region(nil, []manual.Arg{{Node: x, Spec: sharding.P()}}, []sharding.Spec{sharding.P()},
			func(in []*graph.Node) []*graph.Node {
				here := graph.Equal(manual.Index(x.Graph()), graph.Const(x.Graph(), int32(last)))
				return []*graph.Node{manual.Broadcast(graph.Where(here, minus(in[0]), graph.OnesLike(in[0])), last)}
			})[0],
		"parts":  logical.Replicate(minus(logical.Split(x, p))),
		"gather": graph.Slice(rc.AllGather(minus(x), 0), graph.AxisRange(0, x.Shape().Dim(0))),
	}
	first := graph.Equal(rc.ReplicaIDInSyncGroup(), graph.Const(x.Graph(), int32(0)))
	all["broadcast"] = rc.Broadcast(graph.Where(first, minus(x), graph.OnesLike(x)))
	a := logical.Assign(minus(x), last) // stays on the device until the next region sends it
	all["kept"] = logical.Assign(minus(logical.Assign(minus(a), last)), last)
	return all
}

func minus(x *graph.Node) *graph.Node {
	if x.DType() == dtypes.Bool {
		return graph.LogicalNot(x)
	}
	return graph.Neg(x)
}

// crossed transfers the numbers of each dtype between devices, in all ways. It accepts the bits of
// the numbers and returns the bits of the results, with the results' names.
func crossed(s *strategy.TPUStrategy, of []dtypes.DType, names *[]string) *strategy.Function {
	return s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
		*names = nil
		for i, dtype := range of {
			x, unsigned := in[i], in[i].DType()
			switch {
			case dtype.IsComplex():
				part := graph.Bitcast(x, dtype.RealDType())
				x = graph.Complex(part, graph.Reverse(part, 0))
			case dtype == dtypes.Bool:
				x = graph.Equal(x, graph.OnesLike(x))
			default:
				x = graph.Bitcast(x, dtype)
			}
			all := crossings(rc, s.NumLogicalDevices(), x)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				y := all[name]
				switch {
				case dtype.IsComplex():
					y = graph.Stack([]*graph.Node{graph.Bitcast(graph.Real(y), unsigned), graph.Bitcast(graph.Imag(y), unsigned)}, 0)
				case dtype == dtypes.Bool:
					y = graph.ConvertDType(y, unsigned)
				default:
					y = graph.Bitcast(y, unsigned)
				}
				out, *names = append(out, y), append(*names, fmt.Sprintf("%s of %s", name, dtype))
			}
		}
		return out
	}, strategy.FunctionOptions{})
}

// TestValuesCrossWithTheirBits checks that every transfer between devices preserves all bits.
func TestValuesCrossWithTheirBits(t *testing.T) {
	ctx := context.Background()
	given := map[dtypes.DType]any{dtypes.Complex64: bitsOf[dtypes.Float32], dtypes.Complex128: bitsOf[dtypes.Float64],
		dtypes.Bool: bitsOf[dtypes.Int8]}
	maps.Copy(given, bitsOf)
	of := slices.Sorted(maps.Keys(given))
	run := func(s *strategy.TPUStrategy) (names []string, out []any) {
		var in []any
		for _, dtype := range of {
			x, err := s.Mirror(ctx, given[dtype], logical.Annotation{})
			require.NoError(t, err)
			in = append(in, x)
		}
		results, err := crossed(s, of, &names).Run(ctx, in...)
		require.NoError(t, err)
		for i, name := range names {
			all := strategytest.Values(t, results[i], s.NumReplicasInSync())
			for r := range all {
				assert.Equal(t, all[0], all[r], "%s, replica %d", name, r)
			}
			out = append(out, all[0])
		}
		return names, out
	}
	names, want := run(strategytest.New(t, 1, 1))
	for i, name := range names { // transfers that negate change only the first bit
		if bits, ok := want[i].([]uint32); ok && name == "on of Float32" {
			for j, given := range bitsOf[dtypes.Float32].([]uint32) {
				assert.Equal(t, given^1<<31, bits[j], name)
			}
		}
	}
	for _, mesh := range [][2]int{{8, 1}, {4, 2}, {2, 4}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			_, got := run(strategytest.New(t, mesh[0], mesh[1]))
			for i, name := range names {
				assert.Equal(t, want[i], got[i], "%s: %x, want %x", name, got[i], want[i])
			}
		})
	}
}

// TestAnAssignedZeroKeepsItsSign divides by a value of one device.
func TestAnAssignedZeroKeepsItsSign(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}}, func(t *testing.T, s *strategy.TPUStrategy) {
		out, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Reciprocal(logical.Assign(graph.Neg(in[0]), s.NumLogicalDevices()-1))}
		}, strategy.FunctionOptions{}).Run(context.Background(), []float32{0, 0, 0, 0, 0, 0, 0, 0})
		require.NoError(t, err)
		for _, value := range strategytest.Values(t, out[0], s.NumReplicasInSync()) {
			assert.Equal(t, slices.Repeat([]float32{float32(math.Inf(-1))}, 8), value)
		}
	})
}

// TestAOTBitsCross compiles every transfer for TPUs, for the dtypes that they support.
func TestAOTBitsCross(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	of, in := []dtypes.DType{dtypes.Complex64}, []any{shapes.Make(dtypes.Uint32, 16)}
	for _, dtype := range slices.Sorted(maps.Keys(bitsOf)) {
		x, err := shapes.FromAnyValue(bitsOf[dtype])
		require.NoError(t, err)
		of, in = append(of, dtype), append(in, x)
	}
	for _, slice := range []string{"v5e:2x4", "v5p:2x2x2"} {
		_, err := crossed(strategytest.Ahead(t, slice, strategy.Options{LogicalDevices: 4}), of,
			new([]string)).Compiled(context.Background(), in...)
		assert.NoError(t, err, slice)
	}
}
