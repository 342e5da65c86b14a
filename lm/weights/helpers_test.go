package weights_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"testing"
	"testing/fstest"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// array is a tensor for comparisons: its values, row-major.
type array struct {
	dims   []int
	values []float64
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// counting returns an array of consecutive values starting at from.
func counting(from float64, dims ...int) array {
	a := array{dims, make([]float64, size(dims))}
	for i := range a.values {
		a.values[i] = from + float64(i)
	}
	return a
}

// bytes returns the array's values in a dtype of the format.
func (a array) bytes(dtype safetensors.DType) (out []byte) {
	for _, x := range a.values {
		switch dtype {
		case safetensors.F64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
		case safetensors.F32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		case safetensors.BF16:
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(float32(x))>>16))
		case safetensors.I64:
			out = binary.LittleEndian.AppendUint64(out, uint64(int64(x)))
		default:
			panic(dtype)
		}
	}
	return out
}

// tensor is a tensor of a file that a test writes.
type tensor struct {
	name  string
	dtype safetensors.DType
	array
}

// write writes a safetensors file.
func write(t testing.TB, path string, tensors ...tensor) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, file(t, tensors...), 0o644))
}

// file returns a safetensors file of tensors.
func file(t testing.TB, tensors ...tensor) []byte {
	t.Helper()
	var specs []safetensors.Spec
	data := map[string][]byte{}
	for _, x := range tensors {
		specs = append(specs, safetensors.Spec{Name: x.name, DType: x.dtype, Shape: x.dims})
		data[x.name] = x.bytes(x.dtype)
	}
	var out bytes.Buffer
	require.NoError(t, safetensors.Write(&out, specs, nil, func(i safetensors.Info, w io.Writer) error {
		_, err := w.Write(data[i.Name])
		return err
	}))
	return out.Bytes()
}

// open opens a file of tensors, in memory.
func open(t testing.TB, tensors ...tensor) *weights.File {
	t.Helper()
	f, err := weights.OpenFS(fstest.MapFS{weights.SingleName: {Data: file(t, tensors...)}}, ".")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// read reads a box of a variable as numbers.
func read(t testing.TB, p *weights.Plan, f *weights.File, v weights.Variable, start, size []int) []float64 {
	t.Helper()
	n := 1
	for _, d := range size {
		n *= d
	}
	into := make([]byte, n*int(v.DType.Size()))
	require.NoError(t, p.Read(context.Background(), f, v.Path, start, size, into))
	return numbers(v.DType, into)
}

func numbers(dtype dtypes.DType, data []byte) (out []float64) {
	for len(data) > 0 {
		switch dtype {
		case dtypes.Float64:
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(data)))
		case dtypes.Float32:
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		case dtypes.BFloat16:
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data))<<16)))
		case dtypes.Int64:
			out = append(out, float64(int64(binary.LittleEndian.Uint64(data))))
		default:
			panic(dtype)
		}
		data = data[dtype.Size():]
	}
	return out
}

func text(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// openRaw opens a file of one tensor of n elements, given as bytes.
func openRaw(t testing.TB, dtype safetensors.DType, data string, n int) *weights.File {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, safetensors.Write(&out, []safetensors.Spec{{Name: "x", DType: dtype, Shape: []int{n}}}, nil,
		func(_ safetensors.Info, w io.Writer) error {
			_, err := io.WriteString(w, data)
			return err
		}))
	f, err := weights.OpenFS(fstest.MapFS{weights.SingleName: {Data: out.Bytes()}}, weights.SingleName)
	require.NoError(t, err)
	return f
}
