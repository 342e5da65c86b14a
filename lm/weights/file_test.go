package weights_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// raw returns a file with a header and data, without any check.
func raw(header, data string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + data
}

func one(shape, offsets string) string {
	return `{"x":{"dtype":"F32","shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

// TestFilesThatLieAreRefused opens files whose contents do not match their headers.
func TestFilesThatLieAreRefused(t *testing.T) {
	good := func(name string) string {
		return string(file(t, tensor{name, safetensors.F32, counting(0, 2)}))
	}
	index := func(pairs ...string) string {
		var all []string
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, fmt.Sprintf("%q: %q", pairs[i], pairs[i+1]))
		}
		return `{"weight_map": {` + strings.Join(all, ", ") + `}}`
	}
	for name, c := range map[string]struct {
		files map[string]string
		says  string
		kind  errkind.Kind
	}{
		"an empty file": {map[string]string{weights.SingleName: ""}, "too short", errkind.DataLossError},
		"a header beyond the file": {map[string]string{weights.SingleName: raw(one("[1]", "[0,4]"), "1234")[:20]},
			"in a file of 20", errkind.DataLossError},
		"a header of 2^63 bytes": {map[string]string{weights.SingleName: "\xff\xff\xff\xff\xff\xff\xff\x7f{}"},
			"at most 100000000", errkind.DataLossError},
		"a header of all the allowed": {map[string]string{weights.SingleName: "\x00\xe1\xf5\x05\x00\x00\x00\x00{}"},
			"in a file of 10", errkind.DataLossError},
		"data that ends early": {map[string]string{weights.SingleName: raw(one("[2]", "[0,8]"), "1234")},
			"goes beyond the data", errkind.DataLossError},
		"more data than tensors": {map[string]string{weights.SingleName: raw(one("[1]", "[0,4]"), "12345678")},
			"belong to no tensor", errkind.DataLossError},
		"overlapping tensors": {map[string]string{weights.SingleName: raw(
			`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, "123")},
			"inside the one", errkind.DataLossError},
		"an unknown dtype": {map[string]string{weights.SingleName: raw(
			`{"x":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}`, "1234")}, "F31", errkind.DataLossError},
		"a shape that overflows": {map[string]string{weights.SingleName: raw(one("[4294967296,4294967296,4]", "[0,4]"),
			"1234")}, "overflows int64", errkind.DataLossError},
		"a shape of other bytes": {map[string]string{weights.SingleName: raw(one("[3]", "[0,4]"), "1234")}, "12 bytes",
			errkind.DataLossError},
		"a tensor named twice": {map[string]string{weights.SingleName: raw(
			`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "12")},
			"duplicate", errkind.DataLossError},
		"no weights": {map[string]string{"config.json": "{}"}, "a directory without weights",
			errkind.NotFoundError},
		"an index that is no JSON": {map[string]string{weights.IndexName: "{"}, "no index", errkind.DataLossError},
		"an index of nothing": {map[string]string{weights.IndexName: "{}"}, "names no tensors",
			errkind.DataLossError},
		"an index of another form": {map[string]string{weights.IndexName: `{"weight_map": {"x": 3}}`}, "no index",
			errkind.DataLossError},
		"an absent file": {map[string]string{weights.IndexName: index("x", "a.safetensors")}, "not opened",
			errkind.NotFoundError},
		"an absent tensor": {map[string]string{weights.IndexName: index("x", "a.safetensors", "y",
			"a.safetensors"), "a.safetensors": good("x")}, "does not contain it", errkind.DataLossError},
		"a tensor in two files": {map[string]string{weights.IndexName: index("x", "a.safetensors", "y",
			"b.safetensors"), "a.safetensors": good("x"), "b.safetensors": good("x")}, "also has a tensor of this name",
			errkind.DataLossError},
		"a tensor the index lacks": {map[string]string{weights.IndexName: index("x", "a.safetensors"),
			"a.safetensors": string(file(t, tensor{"x", safetensors.F32, counting(0, 2)}, tensor{"y", safetensors.F32,
				counting(0, 2)}))}, "does not list it", errkind.DataLossError},
		"a file above": {map[string]string{weights.IndexName: index("x", "../../etc/passwd")},
			"not in its directory", errkind.PermissionDeniedError},
		"a file of an absolute path": {map[string]string{weights.IndexName: index("x", "/etc/passwd")},
			"not in its directory", errkind.PermissionDeniedError},
		"a file in another directory": {map[string]string{weights.IndexName: index("x", "b/a.safetensors"),
			"b/a.safetensors": good("x")}, "not in its directory", errkind.PermissionDeniedError},
		"a file with a backslash": {map[string]string{weights.IndexName: index("x", `..\a.safetensors`)},
			"not in its directory", errkind.PermissionDeniedError},
		"a directory for a file": {map[string]string{weights.IndexName: index("x", "b"), "b/c": "x"},
			"not a regular file", errkind.ValueError},
		"the index itself for a file": {map[string]string{weights.IndexName: index("x", weights.IndexName)}, "not read",
			errkind.DataLossError},
		"a pickle in a file's clothes": {map[string]string{weights.SingleName: "\x80\x02}q\x00X\x04\x00\x00\x00data"},
			"not read", errkind.DataLossError},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for path, content := range c.files {
				fsys[path] = &fstest.MapFile{Data: []byte(content)}
			}
			_, err := weights.OpenFS(fsys, ".")
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, c.kind, errkind.KindOf(err))
		})
	}
}

// TestWhatIsNoFileIsRefused opens paths that are not regular files.
func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	_, err := weights.Open(filepath.Join(dir, "absent"))
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(err))
	pipe := filepath.Join(dir, weights.SingleName)
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{dir, pipe} {
		_, err = weights.Open(path)
		assert.ErrorContains(t, err, "it is not a regular file", "nobody waits for the pipe's other end")
	}
	require.NoError(t, os.Remove(pipe))
	for _, name := range []string{weights.IndexName, "config.json"} {
		place := filepath.Join(dir, name)
		for what, plant := range map[string]func() error{
			"a pipe":   func() error { return syscall.Mkfifo(place, 0o600) },
			"a device": func() error { return os.Symlink("/dev/zero", place) },
		} {
			require.NoError(t, plant())
			hangtest.Within(t, func() {
				var err error
				if name == weights.IndexName {
					_, err = weights.Open(dir)
				} else {
					_, err = weights.ReadConfig(dir)
				}
				assert.ErrorContains(t, err, what)
			})
			require.NoError(t, os.Remove(place))
		}
	}
	if os.Getuid() != 0 {
		write(t, pipe, tensor{"x", safetensors.F32, counting(0, 2)})
		require.NoError(t, os.Chmod(pipe, 0))
		_, err = weights.Open(pipe)
		assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(err))
	}
	// A file system whose files cannot be opened, even by root.
	_, err = weights.OpenFS(denied{fstest.MapFS{weights.SingleName: {Data: file(t, tensor{"x", safetensors.F32,
		counting(0, 2)})}}}, ".")
	assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(err))
}

// TestLinksAreFollowed opens a directory like Hugging Face's cache, whose files are links.
func TestLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "snapshots", "1"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "blobs"), 0o755))
	write(t, filepath.Join(dir, "blobs", "abc"), tensor{"x", safetensors.F32, counting(0, 2)})
	require.NoError(t, os.Symlink("../../blobs/abc", filepath.Join(dir, "snapshots", "1",
		"model-00001-of-00001.safetensors")))
	text(t, filepath.Join(dir, "blobs", "index"),
		`{"metadata": {}, "weight_map": {"x": "model-00001-of-00001.safetensors"}}`)
	require.NoError(t, os.Symlink("../../blobs/index", filepath.Join(dir, "snapshots", "1", weights.IndexName)))
	f, err := weights.Open(filepath.Join(dir, "snapshots", "1"))
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, []weights.Tensor{{Name: "x", DType: "F32", Shape: []int{2}, File: "model-00001-of-00001.safetensors"}},
		f.Tensors())
}

// TestAFileThatChangesIsNoticed writes to a file after it was opened.
func TestAFileThatChangesIsNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), weights.SingleName)
	v := weights.Variable{Path: "/x", DType: dtypes.Float32, Shape: []int{1000}}
	rules := weights.Rules{{Tensor: "x", To: []weights.Target{{Variable: "/x"}}}}
	for name, change := range map[string]func() error{
		"cut":     func() error { return os.Truncate(path, 2000) },
		"longer":  func() error { return os.Truncate(path, 9000) },
		"touched": func() error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)) },
	} {
		write(t, path, tensor{"x", safetensors.F32, counting(0, 1000)})
		f, err := weights.Open(path)
		require.NoError(t, err)
		p, err := weights.NewPlan(f.Tensors(), []weights.Variable{v}, rules, weights.PlanOptions{})
		require.NoError(t, err)
		into := make([]byte, 4000)
		require.NoError(t, p.Read(context.Background(), f, "/x", []int{0}, []int{1000}, into))
		require.NoError(t, change())
		err = p.Read(context.Background(), f, "/x", []int{0}, []int{1000}, into)
		assert.Equal(t, errkind.DataLossError, errkind.KindOf(err), name)
		require.NoError(t, f.Close())
		require.NoError(t, f.Close(), "again")
		err = p.Read(context.Background(), f, "/x", []int{0}, []int{1000}, into)
		require.ErrorIs(t, err, os.ErrClosed, name)
		assert.ErrorContains(t, err, "keep it open")
	}
}
