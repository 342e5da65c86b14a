package input_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// memory makes files named a, b, c, ... of the given contents.
func memory(contents ...string) ([]string, input.FileOptions) {
	files, paths := fstest.MapFS{}, []string{}
	for i, c := range contents {
		path := string(rune('a' + i))
		files[path] = &fstest.MapFile{Data: []byte(c)}
		paths = append(paths, path)
	}
	return paths, input.FileOptions{FS: files}
}

// unseekable hides that files can seek.
type unseekable struct{ fs.FS }

type readOnly struct{ fs.File }

func (u unseekable) Open(name string) (fs.File, error) {
	f, err := u.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return readOnly{f}, nil
}

func stringsOf(t *testing.T, ds input.Dataset) ([]string, error) {
	t.Helper()
	out := []string{}
	for e, err := range ds.All(context.Background()) {
		if err != nil {
			return out, err
		}
		v, err := input.Flat[string](e.Leaf())
		require.NoError(t, err)
		out = append(out, v...)
	}
	return out, nil
}

func TestLinesEndWithNewlineOrFile(t *testing.T) {
	paths, opts := memory("one\r\ntwo\n\nfour", "", "\n", "a\rb\n")
	got, err := stringsOf(t, input.Lines(paths, opts))
	require.NoError(t, err)
	assert.Equal(t, []string{"one", "two", "", "four", "", "a\rb"}, got)
}

func TestLongLineIsRead(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	paths, opts := memory(long + "\nend\n")
	got, err := stringsOf(t, input.Lines(paths, opts))
	require.NoError(t, err)
	assert.Equal(t, []string{long, "end"}, got)
}

func TestMissingFileIsNamed(t *testing.T) {
	_, opts := memory()
	_, err := stringsOf(t, input.Lines([]string{"absent"}, opts))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "absent")
}

func TestTFRecordsRoundTrip(t *testing.T) {
	want := []string{"", "abc", strings.Repeat("\x00\xff", 5000), "last"}
	var file []byte
	for _, r := range want {
		file = input.AppendTFRecord(file, []byte(r))
	}
	paths, opts := memory(string(file), "", string(input.AppendTFRecord(nil, []byte("b"))))
	got, err := stringsOf(t, input.TFRecords(paths, opts))
	require.NoError(t, err)
	assert.Equal(t, append(want, "b"), got)
}

func TestTFRecordBytesAreThoseOfTheFormat(t *testing.T) {
	// The record of "abc" as the format defines it: the CRC-32C of the length is 0xb8c97cb7 before masking.
	got := input.AppendTFRecord(nil, []byte("abc"))
	require.Len(t, got, 12+3+4)
	assert.Equal(t, []byte{3, 0, 0, 0, 0, 0, 0, 0}, got[:8])
	assert.Equal(t, "abc", string(got[12:15]))
	// CRC-32C("abc") is 0x364b3fb7; rotated right by 15 and added to 0xa282ead8.
	crc := uint32(0x364b3fb7)
	masked := (crc>>15 | crc<<17) + 0xa282ead8
	assert.Equal(t, []byte{byte(masked), byte(masked >> 8), byte(masked >> 16), byte(masked >> 24)}, got[15:])
}

func TestEveryFlippedBitOfATFRecordIsFound(t *testing.T) {
	file := input.AppendTFRecord(nil, []byte("some data"))
	for i := range len(file) * 8 {
		broken := bytes.Clone(file)
		broken[i/8] ^= 1 << (i % 8)
		paths, opts := memory(string(broken))
		_, err := stringsOf(t, input.TFRecords(paths, opts))
		require.ErrorIs(t, err, input.ErrCorrupt, "bit %d", i)
	}
	for n := 1; n < len(file); n++ {
		paths, opts := memory(string(file[:n]))
		_, err := stringsOf(t, input.TFRecords(paths, opts))
		require.ErrorIs(t, err, input.ErrCorrupt, "cut to %d bytes", n)
	}
}

func TestCorruptRecordNamesFileAndOffset(t *testing.T) {
	good := input.AppendTFRecord(nil, []byte("good"))
	paths, opts := memory(string(good), string(good)+"rubbish")
	_, err := stringsOf(t, input.TFRecords(paths, opts))
	var file *input.FileError
	require.ErrorAs(t, err, &file)
	assert.Equal(t, "b", file.Path)
	assert.Equal(t, int64(len(good)), file.Offset)
}

func TestFixedRecordsLeaveOutHeaderAndFooter(t *testing.T) {
	paths, opts := memory("HHabcdefF", "HHF", "HHghiF")
	ds := input.FixedRecords(paths, input.FixedOptions{FileOptions: opts, RecordBytes: 3, HeaderBytes: 2, FooterBytes: 1})
	var got []string
	for e, err := range ds.All(context.Background()) {
		require.NoError(t, err)
		v, err := input.Flat[uint8](e.Leaf())
		require.NoError(t, err)
		got = append(got, string(v))
	}
	assert.Equal(t, []string{"abc", "def", "ghi"}, got)
}

func TestFixedRecordsRefuseOddLength(t *testing.T) {
	for _, content := range []string{"HabcdeF", "H", ""} {
		paths, opts := memory(content)
		ds := input.FixedRecords(paths, input.FixedOptions{FileOptions: opts, RecordBytes: 3, HeaderBytes: 1, FooterBytes: 1})
		it, err := ds.Open(context.Background())
		require.NoError(t, err)
		_, err = it.Next(context.Background())
		assert.ErrorIs(t, err, input.ErrCorrupt, "%q", content)
	}
}

func TestCSVReadsColumnsByTitleAndKind(t *testing.T) {
	paths, opts := memory("\ufeffname,x,y,ok\n\"a, \"\"b\"\"\",1.5, 7 ,true\nc,,8,false\n", "ok,y,x,name\ntrue,9,2,d\n", "")
	ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Header: true, Columns: []input.Column{
		{Name: "y", Kind: input.Int16}, {Name: "x", Kind: input.Float32, Default: "-1"}, {Name: "name", Kind: input.String}, {Name: "ok", Kind: input.Bool},
	}})
	var got []string
	for e, err := range ds.Batch(9, false).All(context.Background()) {
		require.NoError(t, err)
		require.Equal(t, []string{"name", "ok", "x", "y"}, e.Keys())
		for _, x := range e.Leaves() {
			got = append(got, x.String())
		}
		name, _ := e.Get("name")
		y, _ := e.Get("y")
		x, _ := e.Get("x")
		assert.Equal(t, []string{`a, "b"`, "c", "d"}, name.Leaf().Flat())
		assert.Equal(t, []int16{7, 8, 9}, y.Leaf().Flat())
		assert.Equal(t, []float32{1.5, -1, 2}, x.Leaf().Flat())
	}
	assert.Equal(t, []string{"string[3]", "bool[3]", "float32[3]", "int16[3]"}, got)
}

func TestCSVMayBeginWithAByteOrderMark(t *testing.T) {
	columns := []input.Column{{Name: "a", Kind: input.Int32}, {Name: "b", Index: 1, Kind: input.Int32}}
	for name, c := range map[string]struct {
		text   string
		header bool
	}{
		"titles":        {"\ufeffa,b\n1,2\n3,4\n", true},
		"quoted titles": {"\ufeff\"a\",\"b\"\r\n1,2\r\n3,4\r\n", true},
		"no titles":     {"\ufeff1,2\n3,4\n", false},
		"quoted":        {"\ufeff\"1\",2\n3,4", false},
	} {
		paths, opts := memory(c.text, c.text)
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Columns: columns, Header: c.header})
		it, err := ds.Open(context.Background())
		require.NoError(t, err, name)
		first := drain(t, it, 1)
		state, err := it.State()
		require.NoError(t, err, name)
		require.NoError(t, it.Close())
		require.Equal(t, []string{".aint32[] [1] .bint32[] [2] "}, first, name)
		it, err = ds.OpenAt(context.Background(), input.Pass{}, state)
		require.NoError(t, err, name)
		assert.Len(t, drain(t, it, 9), 3, name)
		require.NoError(t, it.Close())
	}
}

func TestCSVWithTitlesThatNobodyTookOutSaysSo(t *testing.T) {
	column := []input.Column{{Name: "x", Kind: input.Float32}}
	read := func(text string) (err error) {
		paths, opts := memory(text)
		for _, e := range input.CSV(paths, input.CSVOptions{FileOptions: opts, Columns: column}).All(context.Background()) {
			err = e
		}
		return err
	}
	assert.ErrorContains(t, read("x,y\n1,2\n"), "set CSVOptions.Header")
	err := read("1,2\nx,y\n")
	require.ErrorIs(t, err, input.ErrCorrupt)
	assert.NotContains(t, err.Error(), "Header", "a later record is no title")
}

func TestCSVRefusesWhatDoesNotParse(t *testing.T) {
	column := func(kind input.Kind) []input.Column { return []input.Column{{Name: "v", Kind: kind, Index: 1}} }
	for name, c := range map[string]struct {
		text   string
		kind   input.Kind
		header bool
	}{
		"not a number":     {"a,b\n", input.Int32, false},
		"out of range":     {"a,300\n", input.Uint8, false},
		"empty":            {"a,\n", input.Float64, false},
		"too few fields":   {"a\n", input.String, false},
		"uneven records":   {"a,1\nb,2,3\n", input.String, false},
		"bare quote":       {"a,b\"c\n", input.String, false},
		"no such title":    {"x,y\n1,2\n", input.String, true},
		"not a truth":      {"a,maybe\n", input.Bool, false},
		"not complex":      {"a,1+\n", input.Complex64, false},
		"not half a float": {"a,x\n", input.Float16, false},
	} {
		paths, opts := memory(c.text)
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Header: c.header, Columns: column(c.kind)})
		var err error
		for _, e := range ds.All(context.Background()) {
			err = e
		}
		assert.ErrorIs(t, err, input.ErrCorrupt, name)
	}
}

func TestFilesRestoreFromAnyRecord(t *testing.T) {
	ctx := context.Background()
	var records []byte
	for _, r := range []string{"a", "", "ccc"} {
		records = input.AppendTFRecord(records, []byte(r))
	}
	for name, make := range map[string]func(fsys func(fs.FS) fs.FS) input.Dataset{
		"lines": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memory("1\n2\r\n3", "4\n\n", "", "5")
			return input.Lines(paths, input.FileOptions{FS: wrap(opts.FS)})
		},
		"tfrecords": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memory(string(records), string(records))
			return input.TFRecords(paths, input.FileOptions{FS: wrap(opts.FS)})
		},
		"fixed": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memory("h123456", "h78")
			return input.FixedRecords(paths, input.FixedOptions{FileOptions: input.FileOptions{FS: wrap(opts.FS)}, RecordBytes: 2, HeaderBytes: 1})
		},
		"csv with header": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memory("a,b\n1,\"x\ny\"\n2,z\n", "b,a\nq,3\n")
			return input.CSV(paths, input.CSVOptions{FileOptions: input.FileOptions{FS: wrap(opts.FS)}, Header: true,
				Columns: []input.Column{{Name: "a", Kind: input.Int8}, {Name: "b", Kind: input.String}}})
		},
		"csv": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memory("1,2\n3,4\n\n5,6", "7,8\n")
			return input.CSV(paths, input.CSVOptions{FileOptions: input.FileOptions{FS: wrap(opts.FS)}, Columns: []input.Column{{Name: "b", Index: 1, Kind: input.Int8}}})
		},
	} {
		for kind, wrap := range map[string]func(fs.FS) fs.FS{
			"seekable":   func(f fs.FS) fs.FS { return f },
			"unseekable": func(f fs.FS) fs.FS { return unseekable{f} },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				ds := make(wrap)
				whole := collect(t, ds)
				require.NotEmpty(t, whole)
				it, err := ds.Open(ctx)
				require.NoError(t, err)
				for at := 0; ; at++ {
					state, err := it.State()
					require.NoError(t, err)
					again, err := ds.OpenAt(ctx, input.Pass{}, state)
					require.NoError(t, err)
					require.Equal(t, whole[at:], drain(t, again, 100), "position %d: %v", at, state)
					require.NoError(t, again.Close())
					if _, err := it.Next(ctx); err == io.EOF {
						return
					}
				}
			})
		}
	}
}

func TestPositionBeyondAFileIsRefused(t *testing.T) {
	paths, opts := memory("1\n2\n")
	for _, wrapped := range []fs.FS{opts.FS, unseekable{opts.FS}} {
		for _, at := range [][]int64{{0, 99}, {0, -1}, {2, 0}} {
			ds := input.Lines(paths, input.FileOptions{FS: wrapped})
			it, err := ds.OpenAt(context.Background(), input.Pass{}, input.State{Op: "lines", At: at})
			if err == nil {
				_, err = it.Next(context.Background())
			}
			assert.ErrorIs(t, err, input.ErrState, "%v", at)
		}
	}
}

func FuzzTFRecords(f *testing.F) {
	f.Add(input.AppendTFRecord(nil, []byte("seed")))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		paths, opts := memory(string(data))
		var back []byte
		for e, err := range input.TFRecords(paths, opts).All(context.Background()) {
			if err != nil {
				require.ErrorIs(t, err, input.ErrCorrupt)
				return
			}
			v, _ := input.Flat[string](e.Leaf())
			back = input.AppendTFRecord(back, []byte(v[0]))
		}
		require.Equal(t, string(data), string(back), "what reads without an error writes back the same")
	})
}

func FuzzCSV(f *testing.F) {
	f.Add("a,b\n1,2\n", true)
	f.Add("1,\"x\ny\"\n", false)
	f.Fuzz(func(t *testing.T, text string, header bool) {
		paths, opts := memory(text)
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Header: header, Columns: []input.Column{{Name: "a", Kind: input.Float32}, {Name: "b", Index: 1, Kind: input.String}}})
		for _, err := range ds.All(context.Background()) {
			if err != nil {
				require.ErrorIs(t, err, input.ErrCorrupt)
			}
		}
	})
}
