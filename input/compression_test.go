package input_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// compressed returns data in a compression of TensorFlow.
func compressed(t *testing.T, compression string, data []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch compression {
	case "GZIP":
		w = gzip.NewWriter(&out)
	case "ZLIB":
		w = zlib.NewWriter(&out)
	default:
		return data
	}
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// notSeekable hides the Seek method of files.
type notSeekable struct{ fs.FS }

func (n notSeekable) Open(name string) (fs.File, error) {
	f, err := n.FS.Open(name)
	return struct{ fs.File }{f}, err
}

// texts returns the elements of a dataset as text, from a state on, and the state before each element.
func texts(t *testing.T, d input.Dataset, from input.State) (out []string, states []input.State) {
	it, err := d.OpenAt(t.Context(), input.Pass{}, from)
	require.NoError(t, err)
	defer it.Close()
	for {
		state, err := it.State()
		require.NoError(t, err)
		e, err := it.Next(t.Context())
		if err == io.EOF {
			return out, states
		}
		require.NoError(t, err)
		out, states = append(out, textOf(e)), append(states, state)
	}
}

// Compressed files have the elements and the positions of plain files: every state of one continues
// the other.
func TestCompressedFilesReadLikePlainFiles(t *testing.T) {
	var records, csv, fixed []byte
	for i := range 300 {
		// Record 7 makes the file begin like gzip would, were it the first.
		records = input.AppendTFRecord(records, bytes.Repeat([]byte{byte(i)}, i%97))
		csv = fmt.Appendf(csv, "%d,\"a,%d\"\r\n", i, i*i)
		fixed = append(fixed, byte(i), byte(i>>8), 7)
	}
	for name, c := range map[string]struct {
		data []byte
		open func(input.FileOptions) input.Dataset
	}{
		"TFRecords": {records, func(o input.FileOptions) input.Dataset { return input.TFRecords([]string{"a", "b"}, o) }},
		"CSV": {append([]byte("\ufeffn,s\n"), csv...), func(o input.FileOptions) input.Dataset {
			return input.CSV([]string{"a", "b"}, input.CSVOptions{FileOptions: o, Header: true,
				Columns: []input.Column{{Name: "s", Kind: input.String}, {Name: "n", Kind: input.Int32}}})
		}},
		"Lines": {csv, func(o input.FileOptions) input.Dataset { return input.Lines([]string{"a", "b"}, o) }},
		"FixedRecords": {append([]byte("h"), fixed...), func(o input.FileOptions) input.Dataset {
			return input.FixedRecords([]string{"a", "b"}, input.FixedOptions{FileOptions: o, RecordBytes: 3, HeaderBytes: 1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			files := func(compression string) fs.FS {
				data := compressed(t, compression, c.data)
				return fstest.MapFS{"a": {Data: data}, "b": {Data: data}}
			}
			want, states := texts(t, c.open(input.FileOptions{FS: files("")}), input.State{})
			require.Len(t, want, 600)
			for _, compression := range []string{"GZIP", "ZLIB"} {
				for _, fsys := range []fs.FS{files(compression), notSeekable{files(compression)}} {
					for _, option := range []string{"", compression} {
						if name == "FixedRecords" && option == "" {
							continue // every byte may be the first of such a file
						}
						d := c.open(input.FileOptions{FS: fsys, Compression: option})
						got, positions := texts(t, d, input.State{})
						require.Equal(t, want, got)
						require.Equal(t, states, positions)
						for _, i := range []int{1, 150, 299, 300, 599} {
							rest, _ := texts(t, d, states[i])
							require.Equal(t, want[i:], rest, "from element %d", i)
						}
					}
				}
				other := map[string]string{"GZIP": "ZLIB", "ZLIB": "GZIP"}[compression]
				_, err := first(t, c.open(input.FileOptions{FS: files(compression), Compression: other}))
				require.ErrorIs(t, err, input.ErrCorrupt)
				assert.ErrorContains(t, err, "("+other+") is damaged")
				// Damaged and truncated data is an error, also at the end of a record.
				data := compressed(t, compression, c.data)
				for _, bad := range [][]byte{data[:len(data)-1], data[:len(data)-5], data[:len(data)/2],
					append(bytes.Clone(data[:len(data)-3]), 1, 2, 3)} {
					d := c.open(input.FileOptions{FS: fstest.MapFS{"a": {Data: bad}, "b": {}}, Compression: compression})
					require.ErrorIs(t, drainAll(t, d), input.ErrCorrupt)
				}
			}
			_, err := first(t, c.open(input.FileOptions{FS: files(""), Compression: "BROTLI"}))
			assert.ErrorContains(t, err, `the compression "BROTLI"; use "GZIP", "ZLIB", "NONE", or ""`)
		})
	}
}

func first(t *testing.T, d input.Dataset) (input.Element, error) {
	it, err := d.Open(t.Context())
	if err != nil {
		return input.Element{}, err
	}
	defer it.Close()
	return it.Next(t.Context())
}

func drainAll(t *testing.T, d input.Dataset) error {
	for _, err := range d.All(t.Context()) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Other compressions are named.
func TestOtherCompressionsAreNamed(t *testing.T) {
	for name, magic := range map[string]string{"Zstandard": "\x28\xb5\x2f\xfd", "bzip2": "BZh91AY&SY",
		"xz": "\xfd7zXZ\x00", "LZ4": "\x04\x22\x4d\x18", "Snappy": "\xff\x06\x00\x00sNaPpY", "ZIP": "PK\x03\x04"} {
		files := input.FileOptions{FS: fstest.MapFS{"f": {Data: []byte(magic + "0123456789abcdef")}}}
		for _, d := range []input.Dataset{input.TFRecords([]string{"f"}, files), input.Lines([]string{"f"}, files),
			input.CSV([]string{"f"}, input.CSVOptions{FileOptions: files,
				Columns: []input.Column{{Name: "x", Kind: input.String}}})} {
			_, err := first(t, d)
			var typed *input.CompressionError
			require.ErrorAs(t, err, &typed, name)
			assert.Equal(t, name, typed.Compression)
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.Equal(t, errkind.NotImplementedError, errkind.KindOf(err))
			assert.Contains(t, err.Error(), "compressed with "+name)
		}
	}
}

// Plain files that resemble compressed ones are read as they are: a TFRecord whose length has the bytes
// of a magic number, and texts.
func TestPlainFilesThatResembleCompressedOnes(t *testing.T) {
	for _, length := range []int{0x088b1f, 0x9c78, 0x0178} {
		file := input.AppendTFRecord(nil, make([]byte, length))
		e, err := first(t, input.TFRecords([]string{"f"}, input.FileOptions{FS: fstest.MapFS{"f": {Data: file}}}))
		require.NoError(t, err)
		assert.Equal(t, []string{string(make([]byte, length))}, e.Leaf().Flat(), "%#x", length)
	}
	for _, text := range []string{"x^2,y\n", "xz\n", "BZh9\n", "PK\n", "BZ"} {
		e, err := first(t, input.Lines([]string{"f"}, input.FileOptions{FS: fstest.MapFS{"f": {Data: []byte(text)}}}))
		require.NoError(t, err)
		assert.Equal(t, []string{strings.TrimSpace(text)}, e.Leaf().Flat())
	}
}
