package text

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	localfiles "github.com/tpustrategy/tpustrategy/internal/files"
)

// Files is an ordered list of texts, each a range of bytes of a file. It does not contain the texts
// themselves. The zero Files is empty. Files is immutable and safe for concurrent use.
type Files struct {
	texts []textRange
}

type textRange struct {
	name       string // path relative to the listed folder, with slashes: the same on every machine
	path       string
	start, end int64
}

// ListFiles returns the texts of all regular files below a folder whose base name matches pattern,
// in the syntax of path.Match, such as "*.go". They are sorted by path. Folders named testdata or
// vendor, folders whose name begins with a dot or an underscore, and symbolic links are omitted. If
// no file matches, the error matches fs.ErrNotExist.
func ListFiles(root, pattern string) (Files, error) {
	subject := "in " + root
	if _, err := path.Match(pattern, ""); err != nil || strings.Contains(pattern, "/") {
		return Files{}, valueError("list", `give a pattern of path.Match for the last name of a path, such as "*.go"`,
			"the pattern %q", pattern)
	}
	if err := localfiles.CheckLocal(root); err != nil {
		return Files{}, wrapError("list", subject, err)
	}
	real, err := filepath.EvalSymlinks(root) // WalkDir does not follow a root that is a link
	if err != nil {
		return Files{}, wrapError("list", subject, err)
	}
	var f Files
	err = filepath.WalkDir(real, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file != real && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") ||
				strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if ok, _ := path.Match(pattern, name); !ok || !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since the folder was read
		} else if err != nil {
			return err
		}
		below, err := filepath.Rel(real, file)
		if err != nil {
			return err
		}
		f.texts = append(f.texts, textRange{name: filepath.ToSlash(below), path: file, end: info.Size()})
		return nil
	})
	if err != nil {
		return Files{}, wrapError("list", subject, err)
	}
	if len(f.texts) == 0 {
		return Files{}, &errkind.Fault{Op: "text: list", Subject: subject, Reason: "no file matches " + pattern,
			Match: fs.ErrNotExist,
			Class: errkind.NotFoundError, Hint: "give a folder that has such files, or another pattern"}
	}
	slices.SortFunc(f.texts, func(a, b textRange) int { return cmp.Compare(a.name, b.name) })
	return f, nil
}

// GoSources returns the Go sources of the standard library and of the go command, which are part of
// every Go installation: the files *.go in the folder src of "go env GOROOT", as [ListFiles]
// returns them. For Go 1.26 these are 64 MB in 5,500 files.
func GoSources(ctx context.Context) (Files, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	if err == nil && root == "" {
		err = errors.New("it printed nothing")
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return Files{}, &errkind.Fault{Op: "text: list Go's sources", Reason: "go env GOROOT failed", Err: err,
			Class: errkind.KindOr(err, errkind.NotFoundError),
			Hint:  "put the go command into PATH, or give files of your own"}
	}
	return ListFiles(filepath.Join(root, "src"), "*.go")
}

// SingleFile returns the text of one file.
func SingleFile(path string) (Files, error) {
	f, info, err := localfiles.Open(path)
	if err != nil {
		return Files{}, wrapError("list", path, err)
	}
	return Files{texts: []textRange{{name: filepath.Base(path), path: path, end: info.Size()}}}, f.Close()
}

// Len returns the number of texts.
func (f Files) Len() int { return len(f.texts) }

// Bytes returns the total size of the texts in bytes, at the time when the files were listed.
func (f Files) Bytes() int64 {
	n := int64(0)
	for _, t := range f.texts {
		n += t.end - t.start
	}
	return n
}

// Names returns the paths of the texts relative to the listed folder, with slashes.
func (f Files) Names() []string {
	names := make([]string, len(f.texts))
	for i, t := range f.texts {
		names[i] = t.name
	}
	return names
}

// Split randomly divides the texts into training and held-out texts. heldOut contains at least the
// given share of all bytes, a fraction between 0 and 1. The selection depends only on the names,
// the sizes and the seed. Both results keep the order of f. A single text is divided at the
// beginning of a line, and heldOut contains its end. If the texts cannot be divided, the error is a
// ValueError.
func (f Files) Split(share float64, seed uint64) (training, heldOut Files, err error) {
	if !(share > 0 && share < 1) {
		return Files{}, Files{}, valueError("split", "give a number between 0 and 1, such as 0.05",
			"a share of %g to hold out", share)
	}
	total := f.Bytes()
	want := int64(share * float64(total))
	switch len(f.texts) {
	case 0:
		return Files{}, Files{}, valueError("split", "list some files", "there are no texts")
	case 1:
		return f.splitAtLine(total - want)
	}
	held := f.sampleTexts(want, seed, len(f.texts)-1)
	for i, t := range f.texts {
		if held[i] {
			heldOut.texts = append(heldOut.texts, t)
		} else {
			training.texts = append(training.texts, t)
		}
	}
	return training, heldOut, nil
}

// Sample returns a random selection of the texts with at least the given number of bytes, or all
// texts if they have fewer. The selection depends only on the names, the sizes and the seed, and
// keeps the order. Of a single text, Sample returns the beginning, up to the end of a line.
func (f Files) Sample(bytes int64, seed uint64) (Files, error) {
	if bytes < 1 {
		return Files{}, valueError("sample", "give a number of bytes from 1", "%d bytes", bytes)
	}
	if bytes >= f.Bytes() {
		return f, nil
	}
	if len(f.texts) == 1 {
		sample, _, err := f.splitAtLine(bytes)
		return sample, err
	}
	var sample Files
	for i, selected := range f.sampleTexts(bytes, seed, len(f.texts)) {
		if selected {
			sample.texts = append(sample.texts, f.texts[i])
		}
	}
	return sample, nil
}

// sampleTexts randomly selects texts until they have minBytes bytes. It selects at least one and at
// most maxTexts texts.
func (f Files) sampleTexts(minBytes int64, seed uint64, maxTexts int) (chosen []bool) {
	order := make([]int, len(f.texts))
	rank := make([]uint64, len(f.texts))
	for i, t := range f.texts {
		h := fnv.New64a()
		h.Write([]byte(t.name))
		order[i], rank[i] = i, splitMix64(h.Sum64()^splitMix64(seed))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	chosen = make([]bool, len(f.texts))
	got := int64(0)
	for n, i := range order {
		if n > 0 && got >= minBytes || n == maxTexts {
			break
		}
		chosen[i] = true
		got += f.texts[i].end - f.texts[i].start
	}
	return chosen
}

// splitAtLine divides a single text at the start of the first line at or after offset.
func (f Files) splitAtLine(offset int64) (training, heldOut Files, err error) {
	t := f.texts[0]
	end := t.start + offset
	file, _, err := localfiles.Open(t.path)
	if err != nil {
		return Files{}, Files{}, wrapError("split", t.path, err)
	}
	defer file.Close()
	const maxLineBytes = 1 << 20 // longer lines are split
	line := make([]byte, min(maxLineBytes, t.end-end))
	n, err := file.ReadAt(line, end)
	if err != nil && err != io.EOF {
		return Files{}, Files{}, wrapError("split", t.path, err)
	}
	if i := bytes.IndexByte(line[:n], '\n'); i >= 0 && end+int64(i)+1 < t.end {
		end += int64(i) + 1
	}
	if end <= t.start || end >= t.end {
		return Files{}, Files{}, valueError("split", "give a longer file, or a larger share",
			"a text of %d bytes does not make two parts", t.end-t.start)
	}
	first, last := t, t
	first.end, last.start = end, end
	return Files{texts: []textRange{first}}, Files{texts: []textRange{last}}, nil
}

// textChunk contains consecutive bytes of a text.
type textChunk struct {
	name   string // of the text
	offset int64  // byte offset in the file
	data   []byte // valid until the next chunk
	isLast bool   // the chunk is the end of its text
}

// maxChunkBytes is the maximum size of a chunk. Longer texts are split after the end of a line.
const maxChunkBytes = 4 << 20

// readChunks reads the texts in order and yields at least one chunk of each. After an error, it stops.
func (f Files) readChunks(ctx context.Context) iter.Seq2[textChunk, error] {
	return func(yield func(textChunk, error) bool) {
		var buffer []byte
		for _, t := range f.texts {
			file, err := t.open()
			for offset := t.start; err == nil; {
				if err = ctx.Err(); err != nil {
					break
				}
				n := int(min(maxChunkBytes, t.end-offset))
				buffer = slices.Grow(buffer[:0], n)[:n]
				if _, err = io.ReadFull(io.NewSectionReader(file, offset, int64(n)), buffer); err != nil {
					err = t.readError(err)
					break
				}
				data, last := buffer, offset+int64(n) == t.end
				if i := bytes.LastIndexByte(data, '\n'); !last && i >= 0 {
					data = data[:i+1]
				}
				begin := offset
				offset += int64(len(data))
				if !yield(textChunk{t.name, begin, data, last}, nil) {
					file.Close()
					return
				}
				if last {
					break
				}
			}
			if file != nil {
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				yield(textChunk{}, err)
				return
			}
		}
	}
}

func (t textRange) open() (*os.File, error) {
	file, _, err := localfiles.Open(t.path)
	if err != nil {
		return nil, &errkind.Fault{Op: "text: read", Subject: t.path, Err: err,
			Hint: "list the files again if they have changed"}
	}
	return file, nil
}

// readError returns an error for a failed read. It reports files that are shorter than when they
// were listed.
func (t textRange) readError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &errkind.Fault{Op: "text: read", Subject: t.path, Class: errkind.DataLossError, Err: io.ErrUnexpectedEOF,
			Reason: "the file is shorter than when it was listed", Hint: "list the files again"}
	}
	return wrapError("read", t.path, err)
}

// splitMix64 is the finalizer of the splitmix64 generator. Its results must never change, because
// saved positions and other processes depend on them.
func splitMix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
