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

// Files is a list of texts in files: which bytes of which files, in a fixed order. It is a value
// that holds no text. The zero Files has no texts. Any number of goroutines may use one.
type Files struct {
	texts []one
}

// one is a text: the bytes from to to-1 of a file.
type one struct {
	name     string // below the folder that was listed, with slashes: the same on every machine
	path     string
	from, to int64
}

// Under returns the texts of all regular files below a folder whose last name matches pattern, as
// path.Match does, such as "*.go". Their order is that of their paths' bytes. Folders named
// testdata or vendor, and those whose name begins with a dot or an underscore, are left out, as the
// go command leaves them out; so are links to other places. The error matches fs.ErrNotExist if
// there is no such file.
func Under(root, pattern string) (Files, error) {
	subject := "in " + root
	if _, err := path.Match(pattern, ""); err != nil || strings.Contains(pattern, "/") {
		return Files{}, wrong("list", `give a pattern of path.Match for the last name of a path, such as "*.go"`, "the pattern %q", pattern)
	}
	if err := localfiles.Local(root); err != nil {
		return Files{}, within("list", subject, err)
	}
	real, err := filepath.EvalSymlinks(root) // a root that is a link would be all that is found
	if err != nil {
		return Files{}, within("list", subject, err)
	}
	var f Files
	err = filepath.WalkDir(real, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if at != real && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if ok, _ := path.Match(pattern, name); !ok || !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is gone since the folder was read
		} else if err != nil {
			return err
		}
		below, err := filepath.Rel(real, at)
		if err != nil {
			return err
		}
		f.texts = append(f.texts, one{name: filepath.ToSlash(below), path: at, to: info.Size()})
		return nil
	})
	if err != nil {
		return Files{}, within("list", subject, err)
	}
	if len(f.texts) == 0 {
		return Files{}, &errkind.Fault{Op: "text: list", Subject: subject, Reason: "no file matches " + pattern, Match: fs.ErrNotExist,
			Class: errkind.NotFoundError, Hint: "give a folder that has such files, or another pattern"}
	}
	slices.SortFunc(f.texts, func(a, b one) int { return cmp.Compare(a.name, b.name) })
	return f, nil
}

// GoSources returns the Go sources of the standard library and of the go command, which every
// machine with Go has: the files *.go [Under] the folder src of "go env GOROOT". For Go 1.26 these
// are 64 MB in 5,500 files.
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
		return Files{}, &errkind.Fault{Op: "text: list Go's sources", Reason: "go env GOROOT failed", Err: err, Class: errkind.Or(err, errkind.NotFoundError),
			Hint: "put the go command into PATH, or give files of your own"}
	}
	return Under(filepath.Join(root, "src"), "*.go")
}

// File returns the text of one file.
func File(path string) (Files, error) {
	f, info, err := localfiles.Open(path)
	if err != nil {
		return Files{}, within("list", path, err)
	}
	return Files{texts: []one{{name: filepath.Base(path), path: path, to: info.Size()}}}, f.Close()
}

// Len returns the number of texts.
func (f Files) Len() int { return len(f.texts) }

// Bytes returns the number of bytes of all texts, as it was when the files were listed.
func (f Files) Bytes() int64 {
	n := int64(0)
	for _, t := range f.texts {
		n += t.to - t.from
	}
	return n
}

// Names returns the paths of the texts below the folder that was listed, with slashes.
func (f Files) Names() []string {
	names := make([]string, len(f.texts))
	for i, t := range f.texts {
		names[i] = t.name
	}
	return names
}

// Split sets texts apart: heldOut has at least the given share of all bytes, between 0 and 1, and
// training has the other texts. Which texts they are depends on their names, their sizes and the
// seed alone, and both parts keep the order of f. Of a single text, its end is set apart, from the
// beginning of a line on. The error of texts that do not make two parts is a ValueError.
func (f Files) Split(share float64, seed uint64) (training, heldOut Files, err error) {
	if !(share > 0 && share < 1) {
		return Files{}, Files{}, wrong("split", "give a number between 0 and 1, such as 0.05", "a share of %g to hold out", share)
	}
	total := f.Bytes()
	want := int64(share * float64(total))
	switch len(f.texts) {
	case 0:
		return Files{}, Files{}, wrong("split", "list some files", "there are no texts")
	case 1:
		return f.cut(total - want)
	}
	held := f.choose(want, seed, len(f.texts)-1)
	for i, t := range f.texts {
		if held[i] {
			heldOut.texts = append(heldOut.texts, t)
		} else {
			training.texts = append(training.texts, t)
		}
	}
	return training, heldOut, nil
}

// Take returns some of the texts, of at least the given number of bytes together, or all of them if
// they are fewer. Which texts they are depends on their names, their sizes and the seed alone, and
// they keep their order. Of a single text Take returns the beginning, up to a line's end.
func (f Files) Take(bytes int64, seed uint64) (Files, error) {
	if bytes < 1 {
		return Files{}, wrong("take", "give the number of bytes to take, from 1", "%d bytes", bytes)
	}
	if bytes >= f.Bytes() {
		return f, nil
	}
	if len(f.texts) == 1 {
		some, _, err := f.cut(bytes)
		return some, err
	}
	var some Files
	for i, taken := range f.choose(bytes, seed, len(f.texts)) {
		if taken {
			some.texts = append(some.texts, f.texts[i])
		}
	}
	return some, nil
}

// choose picks texts in the order of the seed, at least one and at most most, until they have the
// wanted number of bytes.
func (f Files) choose(want int64, seed uint64, most int) (chosen []bool) {
	order := make([]int, len(f.texts))
	rank := make([]uint64, len(f.texts))
	for i, t := range f.texts {
		h := fnv.New64a()
		h.Write([]byte(t.name))
		order[i], rank[i] = i, mix(h.Sum64()^mix(seed))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	chosen = make([]bool, len(f.texts))
	got := int64(0)
	for n, i := range order {
		if n > 0 && got >= want || n == most {
			break
		}
		chosen[i] = true
		got += f.texts[i].to - f.texts[i].from
	}
	return chosen
}

// cut divides a single text at the first beginning of a line from an offset on.
func (f Files) cut(at int64) (training, heldOut Files, err error) {
	t := f.texts[0]
	end := t.from + at
	file, _, err := localfiles.Open(t.path)
	if err != nil {
		return Files{}, Files{}, within("split", t.path, err)
	}
	defer file.Close()
	const longest = 1 << 20 // a longer line is cut
	line := make([]byte, min(longest, t.to-end))
	n, err := file.ReadAt(line, end)
	if err != nil && err != io.EOF {
		return Files{}, Files{}, within("split", t.path, err)
	}
	if i := bytes.IndexByte(line[:n], '\n'); i >= 0 && end+int64(i)+1 < t.to {
		end += int64(i) + 1
	}
	if end <= t.from || end >= t.to {
		return Files{}, Files{}, wrong("split", "give a longer file, or a larger share", "a text of %d bytes does not make two parts", t.to-t.from)
	}
	first, last := t, t
	first.to, last.from = end, end
	return Files{texts: []one{first}}, Files{texts: []one{last}}, nil
}

// piece is a part of a text. Its bytes follow the bytes of the piece before.
type piece struct {
	name string // of the text
	at   int64  // the position in the file
	data []byte // valid until the next piece
	last bool   // the text ends here
}

// most is how many bytes of a text are read at once. Longer texts are cut behind a line's end.
const most = 4 << 20

// pieces reads the texts one after the other. It yields at least one piece of each text, and an
// error at most once, as the last pair.
func (f Files) pieces(ctx context.Context) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		var buffer []byte
		for _, t := range f.texts {
			file, err := t.open()
			for at := t.from; err == nil; {
				if err = ctx.Err(); err != nil {
					break
				}
				n := int(min(most, t.to-at))
				buffer = slices.Grow(buffer[:0], n)[:n]
				if _, err = io.ReadFull(io.NewSectionReader(file, at, int64(n)), buffer); err != nil {
					err = t.changed(err)
					break
				}
				data, last := buffer, at+int64(n) == t.to
				if i := bytes.LastIndexByte(data, '\n'); !last && i >= 0 {
					data = data[:i+1]
				}
				begin := at
				at += int64(len(data))
				if !yield(piece{t.name, begin, data, last}, nil) {
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
				yield(piece{}, err)
				return
			}
		}
	}
}

func (t one) open() (*os.File, error) {
	file, _, err := localfiles.Open(t.path)
	if err != nil {
		return nil, &errkind.Fault{Op: "text: read", Subject: t.path, Err: err, Hint: "list the files again if they have changed"}
	}
	return file, nil
}

// changed is the error of a file that is shorter than it was, or cannot be read.
func (t one) changed(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &errkind.Fault{Op: "text: read", Subject: t.path, Class: errkind.DataLossError, Err: io.ErrUnexpectedEOF,
			Reason: "the file is shorter than when it was listed", Hint: "list the files again"}
	}
	return within("read", t.path, err)
}

// mix is the finalizer of the splitmix64 generator. Saved positions and other processes rely on its
// numbers.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
