package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Info describes a saved variable.
type Info struct {
	// Path is the variable's path in its model.
	Path string
	// Shape is the dtype and the dimensions of the saved value. It is invalid if GoMLX does not
	// have the file's dtype.
	Shape     shapes.Shape
	Trainable bool
	// Synchronization and Aggregation are the rules of the variable that was saved: they say how
	// its components became one value.
	Synchronization strategy.VariableSynchronization
	Aggregation     strategy.VariableAggregation
}

// Checkpoint is an open checkpoint. It is safe for concurrent use, except for Close, which must
// come last.
type Checkpoint struct {
	path      string      // of the tensor file, or of the manifest of one in shards
	raw       io.ReaderAt // the tensor file, while the checkpoint is opened
	file      *safetensors.File
	manifest  *manifest        // nil for a file without one, and for shards
	sharded   *shardedManifest // of one in shards
	objects   []*object        // that the variables' regions are in
	variables []variable       // in the order of the file
	order     []int            // their indices in the order in which they were saved
	metadata  map[string]string
	step      int64
}

// variable is a saved variable and its tensor.
type variable struct {
	Info
	tensor  string
	bytes   int64
	element int64     // bytes of an element
	sum     *checksum // nil if not known
	regions []region
}

// inFile says where in the tensor file the variable lies.
func (v *variable) inFile(t safetensors.Info, data int64) {
	g := region{offset: data + t.Offset, bytes: t.Bytes}
	count := int64(1)
	for _, d := range t.Shape {
		g.start, g.size = append(g.start, 0), append(g.size, int(d))
		count *= d
	}
	v.element = t.Bytes / max(count, 1)
	v.regions = []region{g}
}

// Open opens the checkpoint in a directory. It reads the checkpoint's description of itself and
// compares it with the tensor file's header and length; it does not read the tensors yet. Close the
// checkpoint after use.
//
// The error matches [ErrCorrupt] if the checkpoint is damaged, or if its files cannot be read or
// are no regular files. It matches [ErrNone] if there is no such directory, or if it is a directory
// of checkpoints (see [OpenDirectory]). A checkpoint of a later version is a [*VersionError], and a
// URL a [*PathError].
func Open(dir string) (*Checkpoint, error) {
	if err := files.Local(dir); err != nil {
		return nil, doing("open", "", err)
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, &errkind.Fault{Match: ErrNone, Err: err, Hint: "give the directory of a saved step"}
	} else if err != nil {
		return nil, doing("open", "", err)
	}
	path := filepath.Join(dir, manifestFile)
	data, err := readLimited(path)
	if errors.Is(err, os.ErrNotExist) {
		if steps, listing := stepsIn(dir); listing == nil && len(steps) > 0 {
			return nil, none("open it with OpenDirectory", "%s is a directory of checkpoints", dir)
		}
	}
	if err != nil {
		return nil, err
	}
	m, sharded, err := verified(data, path)
	if err != nil {
		return nil, err
	}
	if sharded != nil {
		return openShardedHere(dir)
	}
	c, err := openTensors(filepath.Join(dir, variablesFile), files.OpenHere)
	if err != nil {
		return nil, err
	}
	if err := c.describe(m); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// FileOptions says how a tensor file is read. The zero value works.
type FileOptions struct {
	// Path returns the path of a variable from the name of its tensor. Nil puts a slash before the
	// name.
	Path func(tensor string) string
}

// OpenFile opens a safetensors file of any program as a checkpoint. The checkpoint's step is -1. It
// has no checksums, so Verify checks nothing beyond the file's form. A path that is a URL, a pipe,
// a device or a directory is a [*PathError].
func OpenFile(path string, opts FileOptions) (*Checkpoint, error) {
	c, err := openTensors(path, files.Open)
	if err != nil {
		return nil, err
	}
	c.step, c.metadata = -1, c.file.Metadata()
	seen := map[string]bool{}
	for _, t := range c.file.Tensors() {
		name := "/" + strings.TrimPrefix(t.Name, "/")
		if opts.Path != nil {
			name = opts.Path(t.Name)
		}
		if seen[name] {
			c.Close()
			return nil, &VariableError{Path: name, Reason: "two tensors have this path", Hint: "give them different ones with FileOptions.Path"}
		}
		seen[name] = true
		shape, _ := shapeOf(t.Spec)
		c.order = append(c.order, len(c.variables))
		v := variable{Info: Info{Path: name, Shape: shape, Trainable: true, Synchronization: strategy.OnWrite}, tensor: t.Name, bytes: t.Bytes}
		v.inFile(t, c.file.DataOffset())
		c.variables = append(c.variables, v)
	}
	return c, nil
}

// openTensors opens a tensor file.
func openTensors(path string, open func(string) (*os.File, fs.FileInfo, error)) (*Checkpoint, error) {
	raw, info, err := open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	file, err := safetensors.New(raw, info.Size())
	if err != nil {
		raw.Close()
		return nil, &CorruptError{File: path, Reason: "no tensor file", Err: err}
	}
	o := &object{name: path, opened: localFile{raw, info.Size()}, size: info.Size()}
	o.file.Store(true)
	return &Checkpoint{path: path, raw: raw, file: file, objects: []*object{o}}, nil
}

// openPlain opens a checkpoint of one tensor file in a store, whose manifest is verified.
func openPlain(ctx context.Context, s storage.Store, m *manifest) (*Checkpoint, error) {
	name := stepName(m.Step) + "/" + variablesFile
	path := s.String() + "/" + name
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, unreadable(path, err)
	}
	file, err := safetensors.New(readerAt{ctx, o}, o.Size())
	if err != nil {
		o.Close()
		return nil, &CorruptError{File: path, Reason: "no tensor file", Err: err}
	}
	c := &Checkpoint{path: path, raw: readerAt{ctx, o}, file: file, objects: []*object{{name: path, opened: o, size: o.Size()}}}
	if err := c.describe(m); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// describe takes over the manifest, if the file is the one that it describes.
func (c *Checkpoint) describe(m *manifest) error {
	corrupt := func(format string, args ...any) error {
		return &CorruptError{File: c.path, Reason: fmt.Sprintf(format, args...)}
	}
	if got := c.objects[0].size; got != m.Bytes {
		return corrupt("it has %d bytes, %d were written", got, m.Bytes)
	}
	header := make([]byte, m.HeaderBytes)
	if err := c.read(header, 0); err != nil {
		return err
	}
	if got := checksum(0).plus(header); got != m.HeaderCRC32C {
		return corrupt("its header's checksum is %s, %s was written", got, m.HeaderCRC32C)
	}
	c.order = make([]int, len(m.Variables))
	places := map[string]int{}
	for i, v := range m.Variables {
		places[v.Tensor] = i
	}
	all := c.file.Tensors()
	if len(all) != len(m.Variables) {
		return corrupt("it has %d tensors, %d were written", len(all), len(m.Variables))
	}
	for _, t := range all {
		i, ok := places[t.Name]
		if !ok {
			return corrupt("tensor %q was not written", t.Name)
		}
		v := m.Variables[i]
		shape, ok := shapeOf(t.Spec)
		if !ok {
			return corrupt("tensor %q has dtype %s, which was not written", t.Name, t.DType)
		}
		c.order[i] = len(c.variables)
		synchronization, aggregation, _ := v.rules()
		of := variable{tensor: t.Name, bytes: t.Bytes, sum: &v.CRC32C, Info: Info{
			Path: v.Path, Shape: shape, Trainable: v.Trainable, Synchronization: synchronization, Aggregation: aggregation,
		}}
		of.inFile(t, c.file.DataOffset())
		c.variables = append(c.variables, of)
	}
	c.manifest, c.step, c.metadata = m, m.Step, m.Metadata
	return nil
}

func readLimited(path string) ([]byte, error) {
	f, _, err := files.OpenHere(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := files.All(f, maxManifest)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return data, nil
}

// unreadable is the error of a file of a checkpoint that cannot be read. It is damage, unless the
// file may be whole and this process has not the right or the means to read it.
func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &CorruptError{File: path, Reason: "the file is missing", Err: err}
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return doing("read", "", err)
	}
	if errors.As(err, new(*files.Error)) { // a link, a pipe, a device: no checkpoint has one
		return &CorruptError{File: path, Reason: "it cannot be read", Err: err}
	}
	switch errkind.Of(err) { // of a store that did not answer: what it holds is not known
	case errkind.UnavailableError, errkind.PermissionDeniedError, errkind.FailedPreconditionError, errkind.DeadlineExceededError, errkind.CancelledError:
		return doing("read", "", err)
	}
	return &CorruptError{File: path, Reason: "it cannot be read", Err: err}
}

// Step returns the step of the checkpoint, and -1 for a file of [OpenFile].
func (c *Checkpoint) Step() int64 { return c.step }

// Metadata returns a copy of the metadata that was saved with the checkpoint.
func (c *Checkpoint) Metadata() map[string]string { return maps.Clone(c.metadata) }

// Variables returns the descriptions of the saved variables, in the order of the file. It
// corresponds to tf.train.list_variables.
func (c *Checkpoint) Variables() []Info {
	out := make([]Info, len(c.variables))
	for i, v := range c.variables {
		out[i] = v.Info
	}
	return out
}

// Close closes the files. A second Close does nothing.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, o := range c.objects {
		if err := o.close(); err != nil {
			errs = append(errs, doing("close", o.name, err))
		}
	}
	return errors.Join(errs...)
}
