package gomlx_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// shape is a number of replicas and of logical devices of each.
type shape struct {
	name     string
	replicas int
	logical  int
}

var (
	alone        = shape{"1x1", 1, 1}
	grid         = shape{"4x2", 4, 2}
	shapesOfMesh = []shape{alone, {"8x1", 8, 1}, grid, {"2x4", 2, 4}}
)

// newBackend returns a backend that is finalized at the end of the test.
func newBackend(t testing.TB, over shape, opts ...gomlx.Options) *gomlx.Backend {
	t.Helper()
	o := append(opts, gomlx.Options{})[0]
	o.LogicalDevices = over.logical
	if o.Compiler == nil {
		o.Compiler = plugintest.Programs(t)
	}
	b, err := gomlx.New(plugintest.System(t, over.replicas*over.logical), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// tensor is an argument or a result: its flat values and dimensions, and the parameter's name.
type tensor struct {
	name  string
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

// put makes a buffer of x for device 0.
func put(t testing.TB, b compute.Backend, x tensor) *gomlx.Buffer {
	t.Helper()
	buf, err := b.BufferFromFlatData(0, x.flat, x.shape())
	require.NoError(t, err)
	return buf.(*gomlx.Buffer)
}

// flatOf reads a buffer.
func flatOf(t testing.TB, buf compute.Buffer) any {
	t.Helper()
	s, err := buf.Shape()
	require.NoError(t, err)
	length := s.DType.SizeForDimensions(s.Dimensions...) / max(1, int(s.DType.GoType().Size()))
	out := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), length, length).Interface()
	require.NoError(t, buf.ToFlatData(out))
	return out
}

// body makes the results of a program of its parameters.
type body = func(f compute.Function, x []compute.Value) []compute.Value

// compiledOf builds a program with one parameter for each tensor.
func compiledOf(t testing.TB, b compute.Backend, params []tensor, of body) *gomlx.Executable {
	t.Helper()
	exe, err := tryCompile(t, b, params, of)
	require.NoError(t, err)
	t.Cleanup(exe.Finalize)
	return exe.(*gomlx.Executable)
}

func tryCompile(t testing.TB, b compute.Backend, params []tensor, of body) (compute.Executable, error) {
	t.Helper()
	builder := b.Builder(t.Name())
	f := builder.Main()
	x := make([]compute.Value, len(params))
	for i, p := range params {
		name := p.name
		if name == "" {
			name = "arg" + string(rune('0'+i))
		}
		var err error
		x[i], err = f.Parameter(name, p.shape(), nil)
		require.NoError(t, err)
	}
	require.NoError(t, f.Return(of(f, x), nil))
	return builder.Compile()
}

// runOf compiles, executes and reads the results.
func runOf(t testing.TB, b compute.Backend, params []tensor, of body) (values []any) {
	t.Helper()
	exe := compiledOf(t, b, params, of)
	in := make([]compute.Buffer, len(params))
	for i, p := range params {
		in[i] = put(t, b, p)
	}
	out, err := exe.Execute(in, nil, 0)
	require.NoError(t, err)
	for _, buf := range out {
		values = append(values, flatOf(t, buf))
		require.NoError(t, buf.Finalize())
	}
	return values
}

// closure makes a closure of f with the given body.
func closure(t testing.TB, f compute.Function, of func(c compute.Function) []compute.Value) compute.Function {
	t.Helper()
	c, err := f.Closure()
	require.NoError(t, err)
	require.NoError(t, c.Return(of(c), nil))
	return c
}

// failures picks what failed out of a verbose run.
func failures(out string) string {
	var keep []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
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

// assertFault checks that an error has a kind and contains the expected text.
func assertFault(t testing.TB, err error, says ...string) {
	t.Helper()
	require.Error(t, err)
	var kind interface{ Kind() errkind.Kind }
	assert.True(t, errors.As(err, &kind), "%T has no kind: %v", err, err)
	for _, text := range says {
		assert.ErrorContains(t, err, text)
	}
}

// isClosed reports whether an error means that an object was closed concurrently.
func isClosed(err error) bool { return errors.Is(err, pjrt.ErrClosed) }
