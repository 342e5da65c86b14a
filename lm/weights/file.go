package weights

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/internal/strictjson"
)

// The file names that Hugging Face uses for a model in one file, and for the index of a model in
// several files.
const (
	SingleName = "model.safetensors"
	IndexName  = "model.safetensors.index.json"
)

// maxIndexBytes limits the size of an index. The index of a model with a trillion parameters has a
// few megabytes.
const maxIndexBytes = 64 << 20

// Tensor describes a tensor of a file.
type Tensor struct {
	Name string
	// DType is the element type in the notation of safetensors, such as "BF16".
	DType string
	// Shape are the dimensions, row-major.
	Shape []int
	// File is the name of the file that contains the tensor.
	File string
}

// File is an open safetensors file, or all files of an index. All methods except Close are safe for
// concurrent use.
type File struct {
	files     []*weightFile
	tensors   []Tensor
	locations map[string]tensorLocation
	bytesRead atomic.Int64
	closed    atomic.Bool
}

type weightFile struct {
	name    string
	file    fs.File
	headers *safetensors.File
	size    int64
	modTime time.Time
}

type tensorLocation struct {
	file  *weightFile
	index int // index in File.tensors
}

// Open opens a safetensors file, an index (a .json file), or a directory that contains a file
// [IndexName] or [SingleName]. It reads only the headers. The files of an index must be in its
// directory. Symbolic links are followed, because Hugging Face's caches contain links. The caller
// must close the result. Errors name the file and the tensor.
func Open(name string) (*File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fileError(name, "", errkind.Fault{Reason: "not opened", Err: err})
	}
	dir, base := filepath.Split(filepath.Clean(name))
	if info.IsDir() {
		dir, base = name, "."
	}
	if dir == "" {
		dir = "."
	}
	return OpenFS(files.Dir(dir), base)
}

// OpenFS is like [Open], but opens a file in a file system whose files implement io.ReaderAt. The
// name "." means the root directory of the file system.
func OpenFS(fsys fs.FS, name string) (*File, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, fileError(name, "", errkind.Fault{Reason: "not opened", Err: err})
	}
	if info.IsDir() {
		for _, base := range []string{IndexName, SingleName} {
			_, err := fs.Stat(fsys, path.Join(name, base))
			if err == nil {
				return OpenFS(fsys, path.Join(name, base))
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, fileError(path.Join(name, base), "", errkind.Fault{Reason: "not opened", Err: err})
			}
		}
		return nil, fileError(name, "", errkind.Fault{Reason: "a directory without weights", Class: errkind.NotFoundError,
			Hint: fmt.Sprintf("name a directory with %s or %s, or the file itself", IndexName, SingleName)})
	}
	f := &File{locations: map[string]tensorLocation{}}
	if strings.HasSuffix(name, ".json") {
		err = f.openIndex(fsys, name)
	} else {
		_, err = f.openFile(fsys, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) openIndex(fsys fs.FS, name string) error {
	index, err := readIndex(fsys, name)
	if err != nil {
		return err
	}
	wrong := func(tensor, hint, format string, args ...any) error {
		return fileError(name, tensor, errkind.Fault{Reason: fmt.Sprintf(format, args...), Hint: hint})
	}
	has := map[string]*weightFile{}
	for _, tensor := range slices.Sorted(maps.Keys(index)) {
		base := index[tensor]
		if base == "" || base == "." || base == ".." || strings.ContainsAny(base, `/\`) || !fs.ValidPath(base) {
			return fileError(name, tensor,
				errkind.Fault{Reason: fmt.Sprintf("the index names the file %q, which is not in its directory", base),
					Hint: "an index may only list files in its directory", Class: errkind.PermissionDeniedError})
		}
		if has[base] == nil {
			p, err := f.openFile(fsys, path.Join(path.Dir(name), base))
			if err != nil {
				return err
			}
			has[base] = p
		}
		if _, there := has[base].headers.Tensor(tensor); !there {
			return wrong(tensor, "use the index of these files", "the index lists it in file %q, which does not contain it",
				base)
		}
	}
	for _, t := range f.tensors {
		if _, ok := index[t.Name]; !ok {
			return wrong(t.Name, "use the index of these files", "file %q contains it, but the index does not list it", t.File)
		}
	}
	return nil
}

// readIndex returns a map from tensor names to file names.
func readIndex(fsys fs.FS, name string) (map[string]string, error) {
	file, _, err := openRegular(fsys, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := files.ReadAll(file, maxIndexBytes)
	if err != nil {
		return nil, fileError(name, "", errkind.Fault{Reason: "not read", Err: err})
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := strictjson.Unmarshal(text, &index); err != nil {
		return nil, fileError(name, "", errkind.Fault{Reason: "no index", Err: err, Class: errkind.DataLossError})
	}
	if len(index.Files) == 0 {
		return nil, fileError(name, "",
			errkind.Fault{Reason: "the index names no tensors", Hint: `it needs a "weight_map" of names to files`})
	}
	return index.Files, nil
}

// openRegular opens a regular file. Devices and pipes are errors, because opening a pipe could block.
func openRegular(fsys fs.FS, name string) (fs.File, fs.FileInfo, error) {
	info, err := fs.Stat(fsys, name)
	if err == nil {
		err = files.CheckRegular(name, info)
	}
	var file fs.File
	if err == nil {
		file, err = fsys.Open(name)
	}
	if err == nil {
		if info, err = file.Stat(); err == nil {
			return file, info, nil
		}
		err = errors.Join(err, file.Close())
	}
	return nil, nil, fileError(name, "", errkind.Fault{Reason: "not opened", Err: err})
}

// openFile opens one file and adds its tensors to f.
func (f *File) openFile(fsys fs.FS, name string) (*weightFile, error) {
	fail := func(reason, hint string, class errkind.Kind, err error) (*weightFile, error) {
		return nil, fileError(name, "", errkind.Fault{Reason: reason, Hint: hint, Class: class, Err: err})
	}
	file, info, err := openRegular(fsys, name)
	if err != nil {
		return nil, err
	}
	p := &weightFile{name: name, file: file, size: info.Size(), modTime: info.ModTime()}
	f.files = append(f.files, p) // so that Close closes it
	reader, ok := file.(io.ReaderAt)
	if !ok {
		return fail(fmt.Sprintf("a %T has no ReadAt", file), "use files that implement io.ReaderAt",
			errkind.NotImplementedError, errors.ErrUnsupported)
	}
	if p.headers, err = safetensors.New(&countingReader{reader, &f.bytesRead}, p.size); err != nil {
		return fail("not read", "get the file again", errkind.Unknown, err)
	}
	for _, t := range p.headers.Tensors() {
		if other, twice := f.locations[t.Name]; twice {
			return nil, fileError(name, t.Name, errkind.Fault{Reason: fmt.Sprintf("file %q also has a tensor of this name",
				other.file.name),
				Hint: "use the files of one model"})
		}
		f.locations[t.Name] = tensorLocation{p, len(f.tensors)}
		f.tensors = append(f.tensors, Tensor{Name: t.Name, DType: string(t.DType), Shape: t.Shape, File: name})
	}
	return p, nil
}

type countingReader struct {
	io.ReaderAt
	bytes *atomic.Int64
}

func (c *countingReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, offset)
	c.bytes.Add(int64(n))
	return n, err
}

// Tensors returns the tensors of all files, in the order of the files and of the tensors in each
// file.
func (f *File) Tensors() []Tensor {
	all := slices.Clone(f.tensors)
	for i := range all {
		all[i].Shape = slices.Clone(all[i].Shape)
	}
	return all
}

// BytesRead returns the number of bytes that were read so far, including headers.
func (f *File) BytesRead() int64 { return f.bytesRead.Load() }

// readAt fills p with the bytes of a tensor that begin at offset.
func (f *File) readAt(tensor string, p []byte, offset int64) error {
	loc, ok := f.locations[tensor]
	if !ok {
		return fileError("", tensor, errkind.Fault{Reason: "no such tensor", Class: errkind.NotFoundError})
	}
	if f.closed.Load() {
		return fileError(loc.file.name, tensor, errkind.Fault{Reason: "the file is closed", Err: fs.ErrClosed,
			Class: errkind.FailedPreconditionError,
			Hint:  "keep it open until the variables are on the devices"})
	}
	if err := loc.file.headers.ReadAt(tensor, p, offset); err != nil {
		return fileError(loc.file.name, tensor, errkind.Fault{Reason: "not read", Err: err, Hint: "get the file again"})
	}
	return nil
}

// checkUnchanged returns an error if the file has changed since it was opened.
func (p *weightFile) checkUnchanged() error {
	info, err := p.file.Stat()
	if err != nil {
		return fileError(p.name, "", errkind.Fault{Reason: "the file does not exist any more", Err: err})
	}
	if info.Size() != p.size || !info.ModTime().Equal(p.modTime) {
		return fileError(p.name, "", errkind.Fault{Reason: "the file has changed since it was opened",
			Hint: "open it again when no program writes to it"})
	}
	return nil
}

// Close closes the files. Further calls do nothing.
func (f *File) Close() error {
	if f == nil || f.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, p := range f.files {
		errs = append(errs, p.file.Close())
	}
	return errors.Join(errs...)
}
