package input

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	localfiles "github.com/tpustrategy/tpustrategy/internal/files"
)

// FileOptions specifies the file system and the compression of files. The zero value reads files of
// the operating system and detects gzip and zlib.
type FileOptions struct {
	FS fs.FS // nil: paths are those of the operating system
	// Compression is TensorFlow's compression_type: "GZIP", "ZLIB" or "NONE". With "", the
	// compression is detected from the first bytes of each file, except that [FixedRecords] reads
	// files as uncompressed. Positions count decompressed bytes. A restore decompresses the file
	// from its beginning.
	Compression string
}

// ErrCorrupt matches the errors of files whose bytes do not follow their format.
var ErrCorrupt = errkind.New(errkind.DataLossError, "corrupt record")

// inFile adds the file's path and the byte offset of the record to an error.
func inFile(path string, offset int64, err error) error {
	return &errkind.Fault{Op: fmt.Sprintf("input: file %s at byte %d", path, offset), Err: err, Class: errkind.Or(err, errkind.DataLossError)}
}

// files is a source that reads the records of files, one file after the other. Its position is the
// index of the file and a byte offset.
type files struct {
	paths  []string
	opts   FileOptions
	op     string
	spec   Spec
	format func(f *openFile, offset int64) (recordReader, error)
	plain  func(head []byte) bool // see detectCompression
}

// recordReader reads the records of one open file.
type recordReader interface {
	// next returns a record, or io.EOF at the end of the file.
	next() (Element, error)
	// offset returns the byte offset of the next record.
	offset() int64
}

func fromFiles(paths []string, opts FileOptions, op string, spec Spec, plain func(head []byte) bool, format func(*openFile, int64) (recordReader, error)) Dataset {
	if err := checkCompression(opts.Compression); err != nil {
		return Dataset{failure{err}}
	}
	return Dataset{files{slices.Clone(paths), opts, op, spec, format, plain}}
}

func (s files) Info() Info {
	info := Info{Spec: s.spec, Cardinality: UnknownCardinality}
	if len(s.paths) == 0 {
		info.Cardinality = 0
	}
	return info
}

// ErrTooFewFiles matches the error for a dataset with fewer files than processes.
var ErrTooFewFiles = errkind.New(errkind.InvalidArgumentError, "input: could not apply file based sharding")

func (s files) ShardFiles(num, index int) (Source, error) {
	if len(s.paths) < num {
		return nil, &errkind.Fault{Match: ErrTooFewFiles, Hint: "use the policy Data or Off, or more files",
			Reason: fmt.Sprintf("the dataset only has %d file(s), which is not enough for the required %d processes", len(s.paths), num)}
	}
	var mine []string
	for i := index; i < len(s.paths); i += num {
		mine = append(mine, s.paths[i])
	}
	s.paths = mine
	return s, nil
}

func (s files) Open(_ context.Context, _ Pass, from State) (Iterator, error) {
	from, err := from.of(s.op, 2, 0)
	if err != nil {
		return nil, err
	}
	if from.At[0] > int64(len(s.paths)) {
		return nil, misfit("file %d of %d", from.At[0], len(s.paths))
	}
	return &fileIterator{files: s, at: int(from.At[0]), start: from.At[1]}, nil
}

type fileIterator struct {
	files
	at      int   // index of the current file
	start   int64 // offset at which to open it
	current *openFile
	records recordReader
}

func (it *fileIterator) Next(ctx context.Context) (Element, error) {
	for it.at < len(it.paths) {
		if err := ctx.Err(); err != nil {
			return Element{}, err
		}
		if it.records == nil {
			if err := it.open(); err != nil {
				return Element{}, err
			}
		}
		offset := it.records.offset()
		e, err := it.records.next()
		if err == nil {
			return e, nil
		}
		if err != io.EOF {
			return Element{}, inFile(it.paths[it.at], offset, err)
		}
		if err := it.Close(); err != nil {
			return Element{}, err
		}
		it.at, it.start = it.at+1, 0
	}
	return Element{}, io.EOF
}

func (it *fileIterator) open() error {
	path := it.paths[it.at]
	f := &openFile{path: path, fsys: it.opts.FS, compression: it.opts.Compression, plain: it.plain}
	if err := f.open(); err != nil {
		return within("open file", "", err)
	}
	records, err := it.format(f, it.start)
	if err != nil {
		f.Close()
		return inFile(path, it.start, err)
	}
	it.current, it.records = f, records
	return nil
}

func (it *fileIterator) State() (State, error) {
	offset := it.start
	if it.records != nil {
		offset = it.records.offset()
	}
	return State{Op: it.op, At: []int64{int64(it.at), offset}}, nil
}

func (it *fileIterator) Close() error {
	if it.records == nil {
		return nil
	}
	it.start, it.records = it.records.offset(), nil
	if err := it.current.Close(); err != nil {
		return within("close file", "", err)
	}
	return nil
}

// openFile is a file that can be read from any byte, seekable or not.
type openFile struct {
	path        string
	fsys        fs.FS
	compression string // "" until the first use detects it
	plain       func(head []byte) bool
	fs.File
}

func (f *openFile) open() (err error) {
	if f.fsys != nil {
		f.File, err = f.fsys.Open(f.path)
		return err
	}
	// Open rejects pipes and devices, because a restore must be able to read from any offset.
	file, _, err := localfiles.Open(f.path)
	if err != nil {
		return err
	}
	f.File = file
	return nil
}

// PathError reports a path that cannot be read because it is a URL, a pipe, a device or a
// directory. Set [FileOptions].FS to read from another file system.
type PathError = localfiles.Error

// size returns the length of the file in bytes, before decompression.
func (f *openFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// isCompressed reports whether the file is compressed. It is valid after the first call of from, or
// if the compression was specified.
func (f *openFile) isCompressed() bool {
	return f.compression == gzipCompression || f.compression == zlibCompression
}

// fileBuffer is the size of read buffers, in bytes.
const fileBuffer = 1 << 16

// from returns a reader of the decompressed bytes, beginning at offset. It invalidates earlier
// readers. An offset beyond the end of the file is an error, because the position then belongs to
// another file.
func (f *openFile) from(offset int64) (*bufio.Reader, error) {
	if f.compression == "" {
		r, err := f.raw(0)
		if err != nil {
			return nil, err
		}
		head, err := r.Peek(magicBytes)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if f.compression, err = detectCompression(f.path, head, f.plain); err != nil {
			return nil, err
		}
		if offset == 0 && !f.isCompressed() {
			return r, nil
		}
	}
	if f.isCompressed() {
		return f.decompressFrom(offset)
	}
	return f.raw(offset)
}

// raw returns a reader of the file's bytes without decompression, beginning at offset.
func (f *openFile) raw(offset int64) (*bufio.Reader, error) {
	if seeker, ok := f.File.(io.Seeker); ok {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && offset > info.Size() {
			return nil, misfit("byte %d of a file of %d", offset, info.Size())
		}
		_, err = seeker.Seek(offset, io.SeekStart)
		return bufio.NewReaderSize(f.File, fileBuffer), err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(f.File, fileBuffer)
	if _, err := io.CopyN(io.Discard, r, offset); err == io.EOF {
		return nil, misfit("the file is shorter than %d bytes", offset)
	} else if err != nil {
		return nil, err
	}
	return r, nil
}
