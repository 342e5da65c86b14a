package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// raw puts a header and data together without any check.
func raw(header, data string) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

// write makes a file of tensors and their bytes.
func write(t testing.TB, tensors []Spec, metadata map[string]string, data map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, tensors, metadata)
	require.NoError(t, err)
	layout, err := Layout(tensors)
	require.NoError(t, err)
	for _, s := range layout {
		require.NoError(t, w.Write(s.Name, data[s.Name]))
	}
	require.NoError(t, w.Finish())
	return out.Bytes()
}

func TestFileOfTheOfficialPackageIsRead(t *testing.T) {
	f, err := Open("testdata/official.safetensors")
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, map[string]string{"format": "np", "note": `a "quoted" é`}, f.Metadata())
	for name, want := range map[string]struct {
		dtype DType
		shape []int64
		data  any
	}{
		"weights":                  {F32, []int64{2, 3}, []float32{0, .25, .5, .75, 1, 1.25}},
		"bias":                     {F64, []int64{2}, []float64{1.5, -2.5}},
		"steps":                    {I64, nil, int64(7)},
		"mask":                     {Bool, []int64{3}, []uint8{1, 0, 1}},
		"bytes":                    {U8, []int64{5}, []uint8{0, 1, 2, 3, 4}},
		"half":                     {F16, []int64{2, 1}, []uint16{0x3800, 0x7bff}},
		"brain":                    {BF16, []int64{2}, []uint16{0x3f80, 0xc060}},
		"empty":                    {I32, []int64{0, 4}, []int32{}},
		`name with "quotes" and é`: {I8, []int64{1}, []int8{-1}},
	} {
		info, ok := f.Tensor(name)
		require.True(t, ok, name)
		assert.Equal(t, want.dtype, info.DType, name)
		assert.Equal(t, want.shape, info.Shape, name)
		var expected bytes.Buffer
		require.NoError(t, binary.Write(&expected, binary.LittleEndian, want.data))
		got, err := f.Read(name)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(expected.Bytes(), got), "%s: %v", name, got)
	}
	assert.Len(t, f.Tensors(), 9)
}

func TestWrittenFileIsByteIdenticalToTheOfficialOne(t *testing.T) {
	// These are the bytes that safetensors 0.8.0 writes for the same tensors. Its order differs
	// from Layout's only between types of the same size.
	tensors := []Spec{{"b", U8, []int64{2}}, {"a", F32, []int64{1}}, {"c", F32, nil}}
	got := write(t, tensors, map[string]string{"z": "1"}, map[string][]byte{"a": {1, 2, 3, 4}, "b": {5, 6}, "c": {7, 8, 9, 10}})
	header := `{"__metadata__":{"z":"1"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"c":{"dtype":"F32","shape":[],"data_offsets":[4,8]},"b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	assert.Equal(t, raw(header, "\x01\x02\x03\x04\x07\x08\x09\x0a\x05\x06"), got)
}

func TestRoundTripOfRandomTensors(t *testing.T) {
	types := []DType{Bool, F4, F6E2M3, F6E3M2, U8, I8, F8E5M2, F8E4M3, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var tensors []Spec
		data := map[string][]byte{}
		for i := range rng.IntN(6) {
			s := Spec{Name: fmt.Sprintf("t%d<&>\u2028\n", i), DType: types[rng.IntN(len(types))]}
			for range rng.IntN(4) {
				s.Shape = append(s.Shape, int64(rng.IntN(4)))
			}
			if s.DType.Bits() < 8 {
				s.Shape = append(s.Shape, 4)
			}
			size, err := s.DType.size(s.Shape)
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
		f, err := Parse(file)
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
			got, err := f.Read(s.Name)
			require.NoError(t, err)
			assert.Equal(t, data[s.Name], got)
		}
	}
}

func TestPartOfATensorIsReadAlone(t *testing.T) {
	file := write(t, []Spec{{"x", U8, []int64{10}}, {"y", U16, []int64{1}}}, nil, map[string][]byte{"x": []byte("0123456789"), "y": {1, 2}})
	f, err := New(&counting{r: bytes.NewReader(file)}, int64(len(file)))
	require.NoError(t, err)
	before := f.src.(*counting).bytes
	p := make([]byte, 3)
	require.NoError(t, f.ReadAt("x", p, 4))
	assert.Equal(t, "456", string(p))
	assert.Equal(t, before+3, f.src.(*counting).bytes)
	require.NoError(t, f.ReadAt("x", nil, 10))
	for _, at := range []int64{-1, 8, 11, math.MaxInt64} {
		assert.ErrorIs(t, f.ReadAt("x", p, at), ErrFormat, "%d", at)
	}
	assert.ErrorIs(t, f.ReadAt("absent", p, 0), ErrFormat)
}

type counting struct {
	r     io.ReaderAt
	bytes int
}

func (c *counting) ReadAt(p []byte, at int64) (int, error) {
	c.bytes += len(p)
	return c.r.ReadAt(p, at)
}

func TestInvalidFilesAreRefused(t *testing.T) {
	x := func(dtype, shape, offsets string) string {
		return `{"x":{"dtype":` + dtype + `,"shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	two := func(a, b string) string {
		return `{"a":{"dtype":"U8","shape":[2],"data_offsets":` + a + `},"b":{"dtype":"U8","shape":[2],"data_offsets":` + b + `}}`
	}
	for name, file := range map[string][]byte{
		"empty file":            {},
		"short length":          {1, 2, 3},
		"length beyond file":    append(binary.LittleEndian.AppendUint64(nil, 10), "{}"...),
		"length over the limit": append(binary.LittleEndian.AppendUint64(nil, MaxHeaderBytes+1), make([]byte, 100)...),
		"length of all bits":    append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "{}"...),
		"no header":             raw("", ""),
		"no object":             raw("[]", ""),
		"leading blank":         raw(" {}", ""),
		"cut object":            raw(`{"x":`, ""),
		"two objects":           raw("{}{}", ""),
		"rubbish after":         raw("{} x", ""),
		"not UTF-8":             raw("{\"\xff\":1}", ""),
		"unknown dtype":         raw(x(`"F31"`, "[1]", "[0,4]"), "1234"),
		"dtype no string":       raw(x(`4`, "[1]", "[0,4]"), "1234"),
		"size differs":          raw(x(`"F32"`, "[2]", "[0,4]"), "1234"),
		"negative dimension":    raw(x(`"U8"`, "[-1]", "[0,0]"), ""),
		"fractional dimension":  raw(x(`"U8"`, "[1.0]", "[0,1]"), "1"),
		"exponent dimension":    raw(x(`"U8"`, "[1e0]", "[0,1]"), "1"),
		"text dimension":        raw(x(`"U8"`, `["1"]`, "[0,1]"), "1"),
		"overflowing shape":     raw(x(`"U8"`, "[4294967296,4294967296]", "[0,0]"), ""),
		"bits not whole bytes":  raw(x(`"F4"`, "[1]", "[0,1]"), "1"),
		"descending offsets":    raw(x(`"U8"`, "[1]", "[1,0]"), "1"),
		"three offsets":         raw(x(`"U8"`, "[1]", "[0,1,1]"), "1"),
		"offset beyond data":    raw(x(`"U8"`, "[2]", "[0,2]"), "1"),
		"huge offsets":          raw(x(`"U8"`, "[1]", "[9223372036854775806,9223372036854775807]"), "1"),
		"hole at start":         raw(x(`"U8"`, "[1]", "[1,2]"), "12"),
		"hole at end":           raw(x(`"U8"`, "[1]", "[0,1]"), "12"),
		"hole between":          raw(two("[0,2]", "[3,5]"), "12345"),
		"overlap":               raw(two("[0,2]", "[1,3]"), "123"),
		"same place":            raw(two("[0,2]", "[0,2]"), "12"),
		"tensor twice":          raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "1"),
		"field twice":           raw(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "1"),
		"field missing":         raw(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, "1"),
		"unknown field":         raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, "1"),
		"tensor no object":      raw(`{"a":1}`, ""),
		"metadata no text":      raw(`{"__metadata__":{"a":1}}`, ""),
		"metadata twice":        raw(`{"__metadata__":{},"__metadata__":{}}`, ""),
		"metadata key twice":    raw(`{"__metadata__":{"a":"","a":""}}`, ""),
		"data without tensors":  raw(`{}`, "1"),
		"null":                  raw(`{"a":null}`, ""),
	} {
		_, err := Parse(file)
		assert.ErrorIs(t, err, ErrFormat, name)
	}
}

func TestUnusualButValidFilesAreRead(t *testing.T) {
	for name, file := range map[string][]byte{
		"nothing":           raw("{}", ""),
		"blanks":            raw("{ }   \n", ""),
		"metadata last":     raw(`{"a":{"shape":[],"data_offsets":[0,1],"dtype":"U8"},"__metadata__":{}}`, "1"),
		"offsets unordered": raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "12"),
		"empty tensors":     raw(`{"a":{"dtype":"F64","shape":[0,9223372036854775807],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "1"),
	} {
		_, err := Parse(file)
		assert.NoError(t, err, name)
	}
}

func TestWriterRefusesWhatDoesNotFollowTheLayout(t *testing.T) {
	tensors := []Spec{{"", U8, []int64{2}}, {"b", U8, []int64{2}}, {"none", U8, []int64{0}}}
	w, err := NewWriter(io.Discard, tensors, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, w.Finish(), ErrFormat)
	assert.ErrorIs(t, w.Write("b", []byte{1}), ErrFormat, "out of order")
	assert.ErrorIs(t, w.Write("", []byte{1, 2, 3}), ErrFormat, "too long")
	require.NoError(t, w.Write("", []byte{1}))
	require.NoError(t, w.Write("", []byte{2}))
	assert.ErrorIs(t, w.Finish(), ErrFormat)
	require.NoError(t, w.Write("b", []byte{1, 2}))
	assert.ErrorIs(t, w.Write("", nil), ErrFormat, "back again")
	require.NoError(t, w.Finish(), "the last one has no bytes")

	for name, bad := range map[string][]Spec{
		"twice":    {{"a", U8, nil}, {"a", U8, nil}},
		"reserved": {{"__metadata__", U8, nil}},
		"dtype":    {{"a", "X", nil}},
		"negative": {{"a", U8, []int64{-1}}},
		"too much": {{"a", U64, []int64{math.MaxInt64}}},
		"sum":      {{"a", U8, []int64{math.MaxInt64}}, {"b", U8, []int64{math.MaxInt64}}},
		"no text":  {{"\xff", U8, nil}},
	} {
		_, err := NewWriter(io.Discard, bad, nil)
		assert.ErrorIs(t, err, ErrFormat, name)
	}
	_, err = NewWriter(io.Discard, nil, map[string]string{"a": "\xff"})
	assert.ErrorIs(t, err, ErrFormat)
	_, err = NewWriter(io.Discard, nil, map[string]string{"a": strings.Repeat("x", MaxHeaderBytes)})
	assert.ErrorIs(t, err, ErrFormat)
}

type failing struct{ after int }

var errDisk = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestFailedWriteStays(t *testing.T) {
	w, err := NewWriter(&failing{after: 1}, []Spec{{"a", U8, []int64{2}}}, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, w.Write("a", []byte{1}), errDisk)
	assert.ErrorIs(t, w.Write("a", []byte{1}), errDisk)
	assert.ErrorIs(t, w.Finish(), errDisk)
}

func TestFileAppearsCompleteOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	f, err := Create(path, []Spec{{"a", U8, []int64{2}}}, nil)
	require.NoError(t, err)
	require.NoError(t, f.Write("a", []byte{1}))
	assert.ErrorIs(t, f.Commit(), ErrFormat, "one byte lacks")
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	assert.Error(t, f.Commit())
	assert.Equal(t, []string{"x.safetensors"}, names())
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(old))

	f, err = Create(path, []Spec{{"a", U8, []int64{2}}}, nil)
	require.NoError(t, err)
	require.NoError(t, f.Write("a", []byte{1, 2}))
	require.NoError(t, f.Commit())
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"x.safetensors"}, names())
	back, err := Open(path)
	require.NoError(t, err)
	data, err := back.Read("a")
	require.NoError(t, err)
	assert.Equal(t, []byte{1, 2}, data)
	require.NoError(t, back.Close())
	require.NoError(t, back.Close())

	_, err = Create(filepath.Join(dir, "absent", "x"), nil, nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Create(path, []Spec{{"a", "X", nil}}, nil)
	assert.ErrorIs(t, err, ErrFormat)
	assert.Equal(t, []string{"x.safetensors"}, names(), "no temporary file stays")
	_, err = Open(filepath.Join(dir, "absent"))
	assert.ErrorIs(t, err, os.ErrNotExist)
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
	f, err := Create(path, []Spec{{"bytes é", U8, []int64{1, 3}}, {"floats", F32, []int64{2}}, {"none", I64, []int64{0}}}, map[string]string{"by": "go"})
	require.NoError(t, err)
	require.NoError(t, f.Write("floats", binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)), math.Float32bits(-2))))
	require.NoError(t, f.Write("bytes é", []byte{1, 2, 3}))
	require.NoError(t, f.Commit())
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
	assert.Equal(t, "{'by': 'go'}\nbytes é uint8 (1, 3) [[1, 2, 3]]\nfloats float32 (2,) [1.5, -2.0]\nnone int64 (0,) []\n", string(out))
}

func FuzzParse(f *testing.F) {
	official, err := os.ReadFile("testdata/official.safetensors")
	require.NoError(f, err)
	f.Add(official)
	f.Add(raw("{}", ""))
	f.Add(raw(`{"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"__metadata__":{"a":"b"}}`, "1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		// What reads also writes, and then reads back the same.
		var tensors []Spec
		content := map[string][]byte{}
		total := int64(0)
		for _, info := range file.Tensors() {
			tensors = append(tensors, info.Spec)
			content[info.Name], err = file.Read(info.Name)
			require.NoError(t, err)
			total += info.Bytes
		}
		require.Equal(t, int64(len(data))-file.base, total)
		again, err := Parse(write(t, tensors, file.Metadata(), content))
		require.NoError(t, err)
		for _, s := range tensors {
			got, err := again.Read(s.Name)
			require.NoError(t, err)
			require.True(t, bytes.Equal(content[s.Name], got))
		}
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "safetensors")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")

	w, err := Create(path, []Spec{{Name: "mask", DType: U8, Shape: []int64{2, 2}}}, map[string]string{"step": "12"})
	if err != nil {
		panic(err)
	}
	defer w.Close()
	if err := w.Write("mask", []byte{1, 0, 0, 1}); err != nil {
		panic(err)
	}
	if err := w.Commit(); err != nil {
		panic(err)
	}

	f, err := Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	row := make([]byte, 2)
	if err := f.ReadAt("mask", row, 2); err != nil {
		panic(err)
	}
	fmt.Println(f.Metadata()["step"], row)
	// Output: 12 [0 1]
}
