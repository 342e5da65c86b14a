package gomlx_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// TestPCGIsGos compares the generator's bits and its next state with those of Go's generator, as
// used by GoMLX's Go backend.
func TestPCGIsGos(t *testing.T) {
	b := newBackend(t, alone, gomlx.Options{Random: lowering.RandomPCG})
	for _, shape := range []shapes.Shape{
		shapes.Make(dtypes.Uint32), shapes.Make(dtypes.Uint32, 1), shapes.Make(dtypes.Uint32, 7), shapes.Make(dtypes.Uint64,
			3),
		shapes.Make(dtypes.Uint32, 5, 3), shapes.Make(dtypes.Uint32, 4, 6), shapes.Make(dtypes.Uint32, 3, 1, 5, 7),
		shapes.Make(dtypes.Uint32, 130, 131),
		shapes.Make(dtypes.Uint8, 3, 5, 9), shapes.Make(dtypes.Uint8, 300, 8), shapes.Make(dtypes.Uint16, 5, 7, 3),
		shapes.Make(dtypes.Uint16, 2, 66),
		shapes.Make(dtypes.Uint32, 5000), shapes.Make(dtypes.Uint32, 70, 70, 2), shapes.Make(dtypes.Uint64, 65, 65),
		shapes.Make(dtypes.Uint32, 9, 4097, 3),
		shapes.Make(dtypes.Uint32, 0, 3),
	} {
		t.Run(shape.String(), func(t *testing.T) {
			state := []uint64{0x123456789abcdef0, 0xfedcba9876543210, 42}
			out := runOf(t, b, []tensor{{flat: state, dims: []int{3}}}, func(f compute.Function,
				x []compute.Value) []compute.Value {
				next, bits, err := f.RNGBitGenerator(x[0], shape)
				require.NoError(t, err)
				return []compute.Value{next, bits}
			})
			rng := rand.NewPCG(state[0], state[1])
			want := make([]byte, 0, shape.ByteSize()+8)
			for len(want) < int(shape.ByteSize()) {
				want = binary.LittleEndian.AppendUint64(want, rng.Uint64())
			}
			var got []byte
			switch flat := out[1].(type) {
			case []uint8:
				got = flat
			case []uint16:
				for _, x := range flat {
					got = binary.LittleEndian.AppendUint16(got, x)
				}
			case []uint32:
				for _, x := range flat {
					got = binary.LittleEndian.AppendUint32(got, x)
				}
			case []uint64:
				for _, x := range flat {
					got = binary.LittleEndian.AppendUint64(got, x)
				}
			}
			assert.Equal(t, string(want[:shape.ByteSize()]), string(got))
			after, err := rng.MarshalBinary()
			require.NoError(t, err)
			assert.Equal(t, []uint64{binary.LittleEndian.Uint64(after[4:]), binary.LittleEndian.Uint64(after[12:]), 42}, out[0])
		})
	}
}

// TestPCGOfPartsIsCompiledForTPUs compiles a random tensor that is sharded over the cores of a TPU:
// each core generates only its part.
func TestPCGOfPartsIsCompiledForTPUs(t *testing.T) {
	if !plugintest.InChild(t) {
		plugintest.Path(t, "tpu")
		out, err := plugintest.Child(t, plugintest.TPUEnv()...)
		require.NoError(t, err, "%s", failures(out))
		return
	}
	plugin := plugintest.Open(t, "tpu")
	topology, err := plugin.NewTopology(t.Context(), "v5e:2x2", nil)
	require.NoError(t, err)
	defer topology.Close()
	trace := spmd.NewTrace(spmd.Options{LogicalDevices: 4, Random: lowering.RandomPCG})
	g := graph.NewGraph(trace, "draw")
	next, value := graph.RandomNormal(graph.Parameter(g, "state", shapes.Make(dtypes.Uint64, 3)),
		shapes.Make(dtypes.Float32, 4096, 8192))
	require.NoError(t, g.Compile(value, next))
	m, err := trace.Module(g, spmd.Signature{Arguments: []spmd.Tensor{{Name: "state"}},
		Results: []spmd.Tensor{{Name: "value", Annotation: logical.SplitInto(1, 4)}, {Name: "next"}}})
	require.NoError(t, err)
	x, err := topology.Compile(t.Context(), pjrt.Program{Code: m.Text, Trusted: true},
		pjrt.CompileOptions{Replicas: 1, Partitions: 4, DeviceAssignment: [][]int{{0, 1, 2, 3}}, SPMD: true, Shardy: true})
	require.NoError(t, err, "%s", m.Text)
	defer x.Close()
	memory, err := x.MemoryStats()
	require.NoError(t, err)
	part := int64(4096 * 8192 * 4 / 4)
	t.Logf("%+v", memory)
	require.Less(t, memory.Temp, 3*part)
}
