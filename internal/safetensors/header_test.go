package safetensors

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInvalidFiles(t *testing.T) {
	x := func(dtype, shape, offsets string) string {
		return `{"x":{"dtype":` + dtype + `,"shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	two := func(a, b string) string {
		return `{"a":{"dtype":"U8","shape":[2],"data_offsets":` + a +
			`},"b":{"dtype":"U8","shape":[2],"data_offsets":` + b + `}}`
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
		"tensor twice": raw(
			`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "1"),
		"field twice":          raw(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "1"),
		"field missing":        raw(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, "1"),
		"unknown field":        raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, "1"),
		"tensor no object":     raw(`{"a":1}`, ""),
		"metadata no text":     raw(`{"__metadata__":{"a":1}}`, ""),
		"metadata twice":       raw(`{"__metadata__":{},"__metadata__":{}}`, ""),
		"metadata key twice":   raw(`{"__metadata__":{"a":"","a":""}}`, ""),
		"data without tensors": raw(`{}`, "1"),
		"null":                 raw(`{"a":null}`, ""),
	} {
		_, err := parse(file)
		assert.ErrorIs(t, err, ErrFormat, name)
	}
}

func TestUnusualValidFiles(t *testing.T) {
	for name, file := range map[string][]byte{
		"nothing":       raw("{}", ""),
		"blanks":        raw("{ }   \n", ""),
		"metadata last": raw(`{"a":{"shape":[],"data_offsets":[0,1],"dtype":"U8"},"__metadata__":{}}`, "1"),
		"offsets unordered": raw(
			`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "12"),
		"empty tensors": raw(
			`{"a":{"dtype":"F64","shape":[0,9223372036854775807],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "1"),
	} {
		_, err := parse(file)
		assert.NoError(t, err, name)
	}
}

func FuzzParse(f *testing.F) {
	official, err := os.ReadFile("testdata/official.safetensors")
	require.NoError(f, err)
	f.Add(official)
	f.Add(raw("{}", ""))
	f.Add(raw(`{"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"__metadata__":{"a":"b"}}`, "1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse(data)
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
			content[info.Name] = read(t, file, info.Name)
			total += info.Bytes
		}
		require.Equal(t, int64(len(data))-file.base, total)
		again, err := parse(write(t, tensors, file.Metadata(), content))
		require.NoError(t, err)
		for _, s := range tensors {
			require.True(t, bytes.Equal(content[s.Name], read(t, again, s.Name)))
		}
	})
}
