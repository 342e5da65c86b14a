package backend_test

import (
	"context"
	"math/rand"
	"reflect"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/backend"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// newClient opens the CPU plugin with four devices.
func newClient(t testing.TB) *pjrt.Client {
	t.Helper()
	plugin, err := pjrt.Open(plugintest.Path(t, "cpu"))
	require.NoError(t, err)
	client, err := plugin.NewClient(t.Context(), pjrt.ClientOptions{Options: map[string]any{"cpu_device_count": 4}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// newBackend makes a backend that ends, with all that was made of it, with the test.
func newBackend(t testing.TB, opts ...backend.Options) *backend.Backend {
	t.Helper()
	client := newClient(t)
	b, err := backend.New(client, append(opts, backend.Options{})[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// tensor is an argument or a result: its flat values and dimensions.
type tensor struct {
	flat  any
	dims  []int
	dtype dtypes.DType // of packed types, whose Go type does not tell
}

func (x tensor) shape() shapes.Shape {
	d := x.dtype
	if d == dtypes.InvalidDType {
		d = dtypes.FromGoType(reflect.TypeOf(x.flat).Elem())
	}
	return shapes.Make(d, x.dims...)
}

// buffer sends x to device 0.
func buffer(t testing.TB, b compute.Backend, x tensor) compute.Buffer {
	t.Helper()
	buf, err := b.BufferFromFlatData(0, x.flat, x.shape())
	require.NoError(t, err)
	return buf
}

// flat reads a buffer back.
func flat(t testing.TB, buf compute.Buffer) any {
	t.Helper()
	s, err := buf.Shape()
	require.NoError(t, err)
	length := s.DType.SizeForDimensions(s.Dimensions...) / max(1, int(s.DType.GoType().Size()))
	out := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), length, length).Interface()
	require.NoError(t, buf.ToFlatData(out))
	return out
}

// compile builds a program with one parameter per tensor.
func compile(t testing.TB, b compute.Backend, params []tensor, body func(f compute.Function, x []compute.Value) []compute.Value) compute.Executable {
	t.Helper()
	builder := b.Builder(t.Name())
	f := builder.Main()
	x := make([]compute.Value, len(params))
	for i, p := range params {
		var err error
		x[i], err = f.Parameter("x"+string(rune('0'+i)), p.shape(), nil)
		require.NoError(t, err)
	}
	require.NoError(t, f.Return(body(f, x), nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	return exe
}

// run compiles, executes on device 0 and reads the results back.
func run(t testing.TB, b compute.Backend, params []tensor, body func(f compute.Function, x []compute.Value) []compute.Value) []any {
	t.Helper()
	exe := compile(t, b, params, body)
	defer exe.Finalize()
	in := make([]compute.Buffer, len(params))
	for i, p := range params {
		in[i] = buffer(t, b, p)
	}
	out, err := exe.Execute(in, nil, 0)
	require.NoError(t, err)
	values := make([]any, len(out))
	for i, buf := range out {
		values[i] = flat(t, buf)
		require.NoError(t, buf.Finalize())
	}
	return values
}

// must unwraps the result of one op.
func must(t testing.TB) func(compute.Value, error) compute.Value {
	t.Helper()
	return func(v compute.Value, err error) compute.Value {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// ctx is the context of the examples.
var ctx = context.Background()

// openCPU opens the CPU plugin where there is no test to skip.
func openCPU() (*pjrt.Plugin, error) {
	find := findOptions()
	find.Kind = "cpu"
	found, err := pjrt.Find(find)
	if err != nil {
		return nil, err
	}
	return pjrt.Open(found.Path)
}

// newSource is a seeded source of the kind GoMLX's datasets take.
func newSource() *rand.Rand { return rand.New(rand.NewSource(5)) }

// closure makes a closure of f with the given body.
func closure(t testing.TB, f compute.Function, body func(c compute.Function) []compute.Value) compute.Function {
	t.Helper()
	c, err := f.Closure()
	require.NoError(t, err)
	require.NoError(t, c.Return(body(c), nil))
	return c
}
