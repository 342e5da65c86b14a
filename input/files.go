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
	// Compression is TensorFlow's compression_type: "GZIP", "ZLIB" or "NONE". If it is empty, the
	// compression is detected from the first bytes of each file, except that [FixedRecords] assumes
	// uncompressed files. Positions count decompressed bytes. A restore decompresses the file from
	// its beginning.
	Compression string
}

// ErrCorrupt matches errors for files with malformed contents.
var ErrCorrupt = errkind.New(errkind.DataLossError, "corrupt record")

// fileError adds the file's path and the byte offset of the record to an error.
func fileError(path string, offset int64, err error) error {
	return &errkind.Fault{Op: fmt.Sprintf("input: file %s at byte %d", path, offset), Err: err,
		Class: errkind.KindOr(err, errkind.DataLossError)}
}

// fileSource is a source that reads the records of files, one file after the other. Its position is
// the index of the file and a byte offset.
type fileSource struct {
	paths     []string
	opts      FileOptions
	op        string
	spec      Spec
	newReader func(f *inputFile, offset int64) (recordReader, error)
	isPlain   func(head []byte) bool // see detectCompression
}

// recordReader reads the records of one open file.
type recordReader interface {
	// next returns a record, or io.EOF at the end of the file.
	next() (Element, error)
	// offset returns the byte offset of the next record.
	offset() int64
}

func fromFiles(paths []string, opts FileOptions, op string, spec Spec, isPlain func(head []byte) bool,
	newReader func(*inputFile, int64) (recordReader, error)) Dataset {
	if err := checkCompression(opts.Compression); err != nil {
		return Dataset{errorSource{err}}
	}
	return Dataset{fileSource{slices.Clone(paths), opts, op, spec, newReader, isPlain}}
}

func (s fileSource) Info() Info {
	info := Info{Spec: s.spec, Cardinality: UnknownCardinality}
	if len(s.paths) == 0 {
		info.Cardinality = 0
	}
	return info
}

// ErrTooFewFiles matches the error for a dataset with fewer files than processes.
var ErrTooFewFiles = errkind.New(errkind.InvalidArgumentError, "input: could not apply file based sharding")

func (s fileSource) ShardFiles(num, index int) (Source, error) {
	if len(s.paths) < num {
		return nil, &errkind.Fault{Match: ErrTooFewFiles, Hint: "use the policy Data or Off, or more files",
			Reason: fmt.Sprintf("the dataset only has %d file(s), which is not enough for the required %d processes",
				len(s.paths), num)}
	}
	var selected []string
	for i := index; i < len(s.paths); i += num {
		selected = append(selected, s.paths[i])
	}
	s.paths = selected
	return s, nil
}

func (s fileSource) Open(_ context.Context, _ Pass, start State) (Iterator, error) {
	start, err := start.forOp(s.op, 2, 0)
	if err != nil {
		return nil, err
	}
	if start.Counters[0] > int64(len(s.paths)) {
		return nil, stateError("file %d of %d", start.Counters[0], len(s.paths))
	}
	return &fileIterator{fileSource: s, fileIndex: int(start.Counters[0]), startOffset: start.Counters[1]}, nil
}

type fileIterator struct {
	fileSource
	fileIndex   int   // index of the current file
	startOffset int64 // offset at which to open the current file
	current     *inputFile
	records     recordReader
}

func (it *fileIterator) Next(ctx context.Context) (Element, error) {
	for it.fileIndex < len(it.paths) {
		if err := ctx.Err(); err != nil {
			return Element{}, err
		}
		if it.records == nil {
			if err := it.openCurrent(); err != nil {
				return Element{}, err
			}
		}
		offset := it.records.offset()
		e, err := it.records.next()
		if err == nil {
			return e, nil
		}
		if err != io.EOF {
			return Element{}, fileError(it.paths[it.fileIndex], offset, err)
		}
		if err := it.Close(); err != nil {
			return Element{}, err
		}
		it.fileIndex, it.startOffset = it.fileIndex+1, 0
	}
	return Element{}, io.EOF
}

func (it *fileIterator) openCurrent() error {
	path := it.paths[it.fileIndex]
	f := &inputFile{path: path, fsys: it.opts.FS, compression: it.opts.Compression, isPlain: it.isPlain}
	if err := f.open(); err != nil {
		return wrapError("open file", "", err)
	}
	records, err := it.newReader(f, it.startOffset)
	if err != nil {
		f.Close()
		return fileError(path, it.startOffset, err)
	}
	it.current, it.records = f, records
	return nil
}

func (it *fileIterator) State() (State, error) {
	offset := it.startOffset
	if it.records != nil {
		offset = it.records.offset()
	}
	return State{Op: it.op, Counters: []int64{int64(it.fileIndex), offset}}, nil
}

func (it *fileIterator) Close() error {
	if it.records == nil {
		return nil
	}
	it.startOffset, it.records = it.records.offset(), nil
	if err := it.current.Close(); err != nil {
		return wrapError("close file", "", err)
	}
	return nil
}

// inputFile is a file that can be read from any byte offset, even if it is not seekable.
type inputFile struct {
	path        string
	fsys        fs.FS
	compression string // "" until the first use detects it
	isPlain     func(head []byte) bool
	fs.File
}

func (f *inputFile) open() (err error) {
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
func (f *inputFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// isCompressed reports whether the file is compressed. It is valid after the first call of reader,
// or if the options specify the compression.
func (f *inputFile) isCompressed() bool {
	return f.compression == gzipCompression || f.compression == zlibCompression
}

// readBufferBytes is the size of read buffers, in bytes.
const readBufferBytes = 1 << 16

// reader returns a reader of the decompressed bytes, beginning at offset. It invalidates earlier
// readers. An offset beyond the end of the file is an error, because it was saved for another file.
func (f *inputFile) reader(offset int64) (*bufio.Reader, error) {
	if f.compression == "" {
		r, err := f.rawReader(0)
		if err != nil {
			return nil, err
		}
		head, err := r.Peek(detectionBytes)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if f.compression, err = detectCompression(f.path, head, f.isPlain); err != nil {
			return nil, err
		}
		if offset == 0 && !f.isCompressed() {
			return r, nil
		}
	}
	if f.isCompressed() {
		return f.decompressFrom(offset)
	}
	return f.rawReader(offset)
}

// rawReader returns a reader of the file's bytes without decompression, beginning at offset.
func (f *inputFile) rawReader(offset int64) (*bufio.Reader, error) {
	if seeker, ok := f.File.(io.Seeker); ok {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && offset > info.Size() {
			return nil, stateError("byte %d of a file of %d", offset, info.Size())
		}
		_, err = seeker.Seek(offset, io.SeekStart)
		return bufio.NewReaderSize(f.File, readBufferBytes), err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(f.File, readBufferBytes)
	if _, err := io.CopyN(io.Discard, r, offset); err == io.EOF {
		return nil, stateError("the file is shorter than %d bytes", offset)
	} else if err != nil {
		return nil, err
	}
	return r, nil
}
