package input_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

// memorySource makes files named a, b, c, ... of the given contents.
func memorySource(contents ...string) ([]string, input.FileOptions) {
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

func TestMissingFileIsNamed(t *testing.T) {
	_, opts := memorySource()
	_, err := stringsOf(t, input.Lines([]string{"absent"}, opts))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "absent")
}

func TestCorruptRecordNamesFileAndOffset(t *testing.T) {
	good := input.AppendTFRecord(nil, []byte("good"))
	paths, opts := memorySource(string(good), string(good)+"rubbish")
	_, err := stringsOf(t, input.TFRecords(paths, opts))
	require.ErrorIs(t, err, input.ErrCorrupt)
	assert.ErrorContains(t, err, fmt.Sprintf("input: file b at byte %d: ", len(good)))
}

func TestFilesRestoreFromAnyRecord(t *testing.T) {
	ctx := context.Background()
	var records []byte
	for _, r := range []string{"a", "", "ccc"} {
		records = input.AppendTFRecord(records, []byte(r))
	}
	for name, make := range map[string]func(fsys func(fs.FS) fs.FS) input.Dataset{
		"lines": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memorySource("1\n2\r\n3", "4\n\n", "", "5")
			return input.Lines(paths, input.FileOptions{FS: wrap(opts.FS)})
		},
		"tfrecords": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memorySource(string(records), string(records))
			return input.TFRecords(paths, input.FileOptions{FS: wrap(opts.FS)})
		},
		"fixed": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memorySource("h123456", "h78")
			return input.FixedRecords(paths, input.FixedOptions{FileOptions: input.FileOptions{FS: wrap(opts.FS)},
				RecordBytes: 2, HeaderBytes: 1})
		},
		"csv with header": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memorySource("a,b\n1,\"x\ny\"\n2,z\n", "b,a\nq,3\n")
			return input.CSV(paths, input.CSVOptions{FileOptions: input.FileOptions{FS: wrap(opts.FS)}, Header: true,
				Columns: []input.Column{{Name: "a", Kind: input.Int8}, {Name: "b", Kind: input.String}}})
		},
		"csv": func(wrap func(fs.FS) fs.FS) input.Dataset {
			paths, opts := memorySource("1,2\n3,4\n\n5,6", "7,8\n")
			return input.CSV(paths, input.CSVOptions{FileOptions: input.FileOptions{FS: wrap(opts.FS)},
				Columns: []input.Column{{Name: "b", Index: 1, Kind: input.Int8}}})
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
	paths, opts := memorySource("1\n2\n")
	for _, wrapped := range []fs.FS{opts.FS, unseekable{opts.FS}} {
		for _, at := range [][]int64{{0, 99}, {0, -1}, {2, 0}} {
			ds := input.Lines(paths, input.FileOptions{FS: wrapped})
			it, err := ds.OpenAt(context.Background(), input.Pass{}, input.State{Op: "lines", Counters: at})
			if err == nil {
				_, err = it.Next(context.Background())
			}
			assert.ErrorIs(t, err, input.ErrState, "%v", at)
		}
	}
}

func TestWhatIsNoFileIsRefusedAndDoesNotHang(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	for _, path := range []string{"gs://bucket/file", "s3://b/f", pipe, "/dev/zero", dir} {
		for name, d := range map[string]input.Dataset{
			"lines": input.Lines([]string{path}, input.FileOptions{}), "records": input.TFRecords([]string{path},
				input.FileOptions{}),
		} {
			var err error
			hangtest.Within(t, func() {
				var it input.Iterator
				if it, err = d.Open(context.Background()); err == nil {
					_, err = it.Next(context.Background())
				}
			})
			var refused *input.PathError
			require.ErrorAs(t, err, &refused, "%s %s", name, path)
			require.Equal(t, path, refused.Path)
		}
	}
	_, err := os.Stat("gs:")
	require.ErrorIs(t, err, os.ErrNotExist)
}
