package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// raw concatenates a header and data without any check.
func raw(header, data string) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

// write returns a file with these tensors.
func write(t testing.TB, tensors []Spec, metadata map[string]string, data map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Write(&out, tensors, metadata, func(i Info, w io.Writer) error {
		_, err := w.Write(data[i.Name])
		return err
	}))
	return out.Bytes()
}

// parse reads a file from memory.
func parse(file []byte) (*File, error) { return New(bytes.NewReader(file), int64(len(file))) }

// load opens and reads a file.
func load(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(data)
}

// read returns all bytes of a tensor.
func read(t testing.TB, f *File, name string) []byte {
	t.Helper()
	info, ok := f.Tensor(name)
	require.True(t, ok, name)
	p := make([]byte, info.Bytes)
	require.NoError(t, f.ReadAt(name, p, 0))
	return p
}

func TestReadFileOfOfficialPackage(t *testing.T) {
	f, err := load("testdata/official.safetensors")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"format": "np", "note": `a "quoted" é`}, f.Metadata())
	for name, want := range map[string]struct {
		dtype DType
		shape []int
		data  any
	}{
		"weights":                  {F32, []int{2, 3}, []float32{0, .25, .5, .75, 1, 1.25}},
		"bias":                     {F64, []int{2}, []float64{1.5, -2.5}},
		"steps":                    {I64, nil, int64(7)},
		"mask":                     {Bool, []int{3}, []uint8{1, 0, 1}},
		"bytes":                    {U8, []int{5}, []uint8{0, 1, 2, 3, 4}},
		"half":                     {F16, []int{2, 1}, []uint16{0x3800, 0x7bff}},
		"brain":                    {BF16, []int{2}, []uint16{0x3f80, 0xc060}},
		"empty":                    {I32, []int{0, 4}, []int32{}},
		`name with "quotes" and é`: {I8, []int{1}, []int8{-1}},
	} {
		info, ok := f.Tensor(name)
		require.True(t, ok, name)
		assert.Equal(t, want.dtype, info.DType, name)
		assert.Equal(t, want.shape, info.Shape, name)
		var expected bytes.Buffer
		require.NoError(t, binary.Write(&expected, binary.LittleEndian, want.data))
		got := read(t, f, name)
		assert.True(t, bytes.Equal(expected.Bytes(), got), "%s: %v", name, got)
	}
	assert.Len(t, f.Tensors(), 9)
}

func TestWriteMatchesOfficialPackage(t *testing.T) {
	// These are the bytes that safetensors 0.8.0 writes for the same tensors. Its order differs
	// from Layout's only between types of the same size.
	tensors := []Spec{{"b", U8, []int{2}}, {"a", F32, []int{1}}, {"c", F32, nil}}
	got := write(t, tensors, map[string]string{"z": "1"},
		map[string][]byte{"a": {1, 2, 3, 4}, "b": {5, 6}, "c": {7, 8, 9, 10}})
	header := `{"__metadata__":{"z":"1"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"c":{"dtype":"F32","shape":[],"data_offsets":[4,8]},"b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	assert.Equal(t, raw(header, "\x01\x02\x03\x04\x07\x08\x09\x0a\x05\x06"), got)
}

func TestRoundTrip(t *testing.T) {
	types := []DType{Bool, F4, F6E2M3, F6E3M2, U8, I8, F8E5M2, F8E4M3, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ, I16, U16, F16,
		BF16, I32, U32, F32, C64, F64, I64, U64}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var tensors []Spec
		data := map[string][]byte{}
		for i := range rng.IntN(6) {
			s := Spec{Name: fmt.Sprintf("t%d<&>\u2028\n", i), DType: types[rng.IntN(len(types))]}
			for range rng.IntN(4) {
				s.Shape = append(s.Shape, rng.IntN(4))
			}
			if s.DType.Bits() < 8 {
				s.Shape = append(s.Shape, 4)
			}
			size, err := s.DType.byteSize(s.Shape)
			require.NoError(t, err)
			data[s.Name] = make([]byte, size)
			for j := range data[s.Name] {
				data[s.Name][j] = byte(rng.Uint32())
			}
			tensors = append(tensors, s)
		}
		var metadata map[string]string
		if rng.IntN(2) == 0 {
			metadata = map[string]string{"k\"": "v", "": "é"}
		}
		file := write(t, tensors, metadata, data)
		rng.Shuffle(len(tensors), func(i, j int) { tensors[i], tensors[j] = tensors[j], tensors[i] })
		assert.Equal(t, file, write(t, tensors, metadata, data), "the bytes depend on the order given")
		f, err := parse(file)
		require.NoError(t, err)
		assert.Equal(t, metadata, f.Metadata())
		require.Len(t, f.Tensors(), len(tensors))
		for _, s := range tensors {
			info, ok := f.Tensor(s.Name)
			require.True(t, ok)
			assert.Equal(t, s, info.Spec)
			assert.Zero(t, f.base%8)
			if s.DType.Bits() >= 8 {
				assert.Zero(t, info.Offset%int64(s.DType.Bits()/8), "unaligned")
			}
			assert.Equal(t, data[s.Name], read(t, f, s.Name))
		}
	}
}

// TestOfficialPackageReadsOurFile needs Python with safetensors and numpy, as make test-python has
// them: TPUSTRATEGY_PYTHON names another interpreter.
func TestOfficialPackageReadsOurFile(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") != "1" {
		t.Skip("TPUSTRATEGY_PYTHON_TESTS=1 runs this test")
	}
	python := os.Getenv("TPUSTRATEGY_PYTHON")
	if python == "" {
		python = "python3"
	}
	path := filepath.Join(t.TempDir(), "ours.safetensors")
	data := map[string][]byte{"bytes é": {1, 2, 3},
		"floats": binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)),
			math.Float32bits(-2))}
	require.NoError(t, WriteFile(path, []Spec{{"bytes é", U8, []int{1, 3}}, {"floats", F32, []int{2}},
		{"none", I64, []int{0}}}, map[string]string{"by": "go"},
		func(i Info, w io.Writer) error {
			_, err := w.Write(data[i.Name])
			return err
		}))
	out, err := exec.Command(python, "-c", `
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="np") as f:
    print(f.metadata())
    for k in sorted(f.keys()):
        t = f.get_tensor(k)
        print(k, t.dtype, t.shape, t.tolist())
`, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t,
		"{'by': 'go'}\nbytes é uint8 (1, 3) [[1, 2, 3]]\nfloats float32 (2,) [1.5, -2.0]\nnone int64 (0,) []\n", string(out))
}

func Example() {
	dir, err := os.MkdirTemp("", "safetensors")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")

	mask := Spec{Name: "mask", DType: U8, Shape: []int{2, 2}}
	err = WriteFile(path, []Spec{mask}, map[string]string{"step": "12"}, func(t Info, w io.Writer) error {
		_, err := w.Write([]byte{1, 0, 0, 1})
		return err
	})
	if err != nil {
		panic(err)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	f, err := New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		panic(err)
	}
	row := make([]byte, 2)
	if err := f.ReadAt("mask", row, 2); err != nil {
		panic(err)
	}
	fmt.Println(f.Metadata()["step"], row)
	// Output: 12 [0 1]
}
