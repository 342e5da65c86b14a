package text

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// write makes files below a new folder.
func write(t *testing.T, contents map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range contents {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

// read returns the texts as strings.
func read(t *testing.T, f Files) (out []string) {
	t.Helper()
	var text bytes.Buffer
	for p, err := range f.readChunks(t.Context()) {
		require.NoError(t, err)
		text.Write(p.data)
		if p.isLast {
			out = append(out, text.String())
			text.Reset()
		}
	}
	return out
}

func TestFilesAreListedInTheOrderOfTheirPaths(t *testing.T) {
	root := write(t, map[string]string{"b.go": "b", "a/z.go": "az", "a.go": "a", "a/a.go": "aa", "a/b.txt": "no",
		"a/testdata/x.go": "no",
		"vendor/x.go":     "no", ".git/x.go": "no", "_old/x.go": "no", "empty.go": ""})
	require.NoError(t, os.Symlink("b.go", filepath.Join(root, "link.go")))
	files, err := ListFiles(root, "*.go")
	require.NoError(t, err)
	assert.Equal(t, []string{"a.go", "a/a.go", "a/z.go", "b.go", "empty.go"}, files.Names())
	assert.Equal(t, []string{"a", "aa", "az", "b", ""}, read(t, files))
	assert.Equal(t, 5, files.Len())
	assert.EqualValues(t, 6, files.Bytes())

	// The folder itself may be a link, or have such a name.
	link := filepath.Join(t.TempDir(), "testdata")
	require.NoError(t, os.Symlink(root, link))
	again, err := ListFiles(link, "*.go")
	require.NoError(t, err)
	assert.Equal(t, files.Names(), again.Names())
}

func TestListingSaysWhatIsWrong(t *testing.T) {
	root := write(t, map[string]string{"a.go": "a"})
	for name, c := range map[string]struct {
		root, pattern string
		kind          errkind.Kind
		text          string
	}{
		"a pattern":     {root, "[", errkind.ValueError, `the pattern "["`},
		"a path":        {root, "x/*.go", errkind.ValueError, "last name of a path"},
		"nothing there": {root, "*.py", errkind.NotFoundError, "no file matches *.py"},
		"no folder":     {filepath.Join(root, "none"), "*.go", errkind.NotFoundError, "none"},
		"a URL":         {"gs://bucket/texts", "*.go", errkind.NotImplementedError, "gs://bucket/texts"},
	} {
		_, err := ListFiles(c.root, c.pattern)
		require.ErrorContains(t, err, c.text, name)
		assert.Equal(t, c.kind, errkind.KindOf(err), "%s: %v", name, err)
	}
	_, err := ListFiles(root, "*.py")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = SingleFile(root)
	require.ErrorContains(t, err, "directory")
	_, err = SingleFile(filepath.Join(root, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestGoHasItsSources(t *testing.T) {
	files, err := GoSources(t.Context())
	require.NoError(t, err)
	assert.Greater(t, files.Len(), 3000)
	assert.Greater(t, files.Bytes(), int64(20e6))
	assert.Contains(t, files.Names(), "fmt/print.go")
	assert.False(t, slices.ContainsFunc(files.Names(), func(n string) bool {
		return strings.HasPrefix(n, "testdata/") ||
			strings.Contains(n, "/testdata/")
	}))

	t.Setenv("PATH", t.TempDir())
	_, err = GoSources(t.Context())
	require.ErrorContains(t, err, "put the go command into PATH")
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(err))
}

func TestSplitPutsEachTextIntoOnePart(t *testing.T) {
	contents := map[string]string{}
	for i := range 200 {
		contents[fmt.Sprintf("f%03d.go", i)] = strings.Repeat("x", i)
	}
	files, err := ListFiles(write(t, contents), "*.go")
	require.NoError(t, err)
	var parts [][]string
	for seed := range uint64(3) {
		training, heldOut, err := files.Split(0.1, seed)
		require.NoError(t, err)
		assert.Equal(t, files.Len(), training.Len()+heldOut.Len())
		all := slices.Concat(training.Names(), heldOut.Names())
		slices.Sort(all)
		assert.Equal(t, files.Names(), all)
		assert.True(t, slices.IsSorted(heldOut.Names()) && slices.IsSorted(training.Names()))
		share := float64(heldOut.Bytes()) / float64(files.Bytes())
		assert.GreaterOrEqual(t, share, 0.1)
		assert.Less(t, share, 0.1+200/float64(files.Bytes()))

		again, _, err := files.Split(0.1, seed)
		require.NoError(t, err)
		assert.Equal(t, training.Names(), again.Names(), "the same for the same seed")
		for _, other := range parts {
			assert.NotEqual(t, other, heldOut.Names(), "another for another seed")
		}
		parts = append(parts, heldOut.Names())
	}
	training, heldOut, err := files.Split(0.999999, 1)
	require.NoError(t, err)
	assert.Positive(t, training.Len())
	assert.Positive(t, heldOut.Len())
}

func TestTakeChoosesTexts(t *testing.T) {
	contents := map[string]string{}
	for i := range 100 {
		contents[fmt.Sprintf("f%03d.go", i)] = strings.Repeat("x", i)
	}
	files, err := ListFiles(write(t, contents), "*.go")
	require.NoError(t, err)
	some, err := files.Sample(500, 1)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, some.Bytes(), int64(500))
	assert.Less(t, some.Bytes(), int64(600))
	assert.True(t, slices.IsSorted(some.Names()))
	other, err := files.Sample(500, 2)
	require.NoError(t, err)
	assert.NotEqual(t, some.Names(), other.Names())
	every, err := files.Sample(1<<40, 1)
	require.NoError(t, err)
	assert.Equal(t, files.Names(), every.Names())
	_, err = files.Sample(0, 1)
	require.ErrorContains(t, err, "0 bytes")

	one, err := SingleFile(filepath.Join(write(t, map[string]string{"x": "one\ntwo\nthree\n"}), "x"))
	require.NoError(t, err)
	some, err = one.Sample(5, 1)
	require.NoError(t, err)
	assert.Equal(t, []string{"one\ntwo\n"}, read(t, some))
}

func TestOneTextIsCutAtALine(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		share float64
		want  [2]string
	}{
		"at a line":      {"one\ntwo\nthree\nfour\n", 0.5, [2]string{"one\ntwo\nthree\n", "four\n"}},
		"no line's end":  {"abcdefghij", 0.25, [2]string{"abcdefgh", "ij"}},
		"the last line":  {"a\nbcdefghi\n", 0.5, [2]string{"a\nbcde", "fghi\n"}},
		"only two bytes": {"ab", 0.5, [2]string{"a", "b"}},
	} {
		files, err := SingleFile(filepath.Join(write(t, map[string]string{"x": c.text}), "x"))
		require.NoError(t, err)
		training, heldOut, err := files.Split(c.share, 3)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, [2]string{read(t, training)[0], read(t, heldOut)[0]}, name)
	}
	for _, content := range []string{"", "a"} {
		files, err := SingleFile(filepath.Join(write(t, map[string]string{"x": content}), "x"))
		require.NoError(t, err)
		_, _, err = files.Split(0.5, 0)
		require.ErrorContains(t, err, "does not make two parts")
	}
	_, _, err := Files{}.Split(0.5, 0)
	require.ErrorContains(t, err, "no texts")
	for _, share := range []float64{0, 1, -1, 2} {
		_, _, err := Files{}.Split(share, 0)
		require.ErrorContains(t, err, "between 0 and 1")
	}
}

// A text of many pieces is cut behind lines, and one without lines anywhere.
func TestALongTextIsReadInPieces(t *testing.T) {
	for _, line := range []string{"a line of the text\n", "no end "} {
		content := strings.Repeat(line, 3*maxChunkBytes/len(line)+5)
		files, err := SingleFile(filepath.Join(write(t, map[string]string{"x": content}), "x"))
		require.NoError(t, err)
		n := 0
		for p, err := range files.readChunks(t.Context()) {
			require.NoError(t, err)
			assert.LessOrEqual(t, len(p.data), maxChunkBytes)
			if line[len(line)-1] == '\n' {
				assert.EqualValues(t, '\n', p.data[len(p.data)-1])
			}
			n++
		}
		assert.Equal(t, 4, n)
		assert.True(t, content == read(t, files)[0])
	}
}

func TestAFileThatChangesIsAnError(t *testing.T) {
	root := write(t, map[string]string{"a.go": "package a", "b.go": "package b"})
	files, err := ListFiles(root, "*.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "b.go"), []byte("pack"), 0o644))
	_, err = Encode(t.Context(), files, Bytes())
	require.ErrorContains(t, err, "b.go: the file is shorter than when it was listed")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, errkind.DataLossError, errkind.KindOf(err))

	require.NoError(t, os.Remove(filepath.Join(root, "b.go")))
	_, err = Encode(t.Context(), files, Bytes())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "b.go")
	_, err = GzipBitsPerByte(t.Context(), files)
	require.ErrorIs(t, err, fs.ErrNotExist)

	// What was added since the files were listed is not read.
	require.NoError(t, os.WriteFile(filepath.Join(root, "b.go"), []byte("package b // more"), 0o644))
	assert.Equal(t, []string{"package a", "package b"}, read(t, files))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Encode(ctx, files, Bytes())
	require.ErrorIs(t, err, context.Canceled)
}
