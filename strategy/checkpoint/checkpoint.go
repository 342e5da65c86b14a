package checkpoint

import (
	"context"
	"errors"
	"maps"
	"os"
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
	path      string           // of the tensor file, or of the manifest of one in shards
	sharded   *shardedManifest // of one in shards
	objects   []*object        // that the variables' regions are in
	variables []variable       // in the order in which they were saved
	metadata  map[string]string
	step      int64
}

// variable is a saved variable and where it lies.
type variable struct {
	Info
	dtype   safetensors.DType
	bytes   int64
	element int64     // bytes of an element
	whole   *wholeSum // nil where each block has a checksum, and where there is none
	regions []region
}

// inFile describes a variable that lies in one tensor file.
func inFile(info Info, t safetensors.Info, data int64) variable {
	g := region{start: make([]int, len(t.Shape)), size: t.Shape, offset: data + t.Offset, bytes: t.Bytes}
	return variable{Info: info, dtype: t.DType, bytes: t.Bytes, element: int64(t.DType.Bits() / 8), regions: []region{g}}
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
	opened, info, err := files.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	c, file, err := openTensors(context.Background(), localFile{opened, info.Size()}, path)
	if err != nil {
		return nil, err
	}
	c.step, c.metadata = -1, file.Metadata()
	seen := map[string]bool{}
	for _, t := range file.Tensors() {
		name := "/" + strings.TrimPrefix(t.Name, "/")
		if opts.Path != nil {
			name = opts.Path(t.Name)
		}
		if seen[name] {
			c.Close()
			return nil, faultOf(name, "two tensors have this path", "give them different ones with FileOptions.Path", nil)
		}
		seen[name] = true
		shape, _ := shapeOf(t.Spec)
		c.variables = append(c.variables, inFile(Info{Path: name, Shape: shape, Trainable: true, Synchronization: strategy.OnWrite}, t, file.DataOffset()))
	}
	return c, nil
}

// openTensors opens a checkpoint of one tensor file, which it takes over.
func openTensors(ctx context.Context, opened storage.Object, path string) (*Checkpoint, *safetensors.File, error) {
	file, err := safetensors.New(storage.ReaderAt(ctx, opened), opened.Size())
	if err != nil {
		opened.Close()
		return nil, nil, &CorruptError{File: path, Reason: "no tensor file", Err: err}
	}
	o := &object{name: path, size: opened.Size()}
	o.has(opened)
	return &Checkpoint{path: path, objects: []*object{o}}, file, nil
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

// Variables returns the descriptions of the saved variables, in the order in which they were saved.
// It corresponds to tf.train.list_variables.
func (c *Checkpoint) Variables() []Info {
	out := make([]Info, len(c.variables))
	for i, v := range c.variables {
		out[i] = v.Info
	}
	return out
}

// Close closes the files. A second Close does nothing.
func (c *Checkpoint) Close() error {
	if c == nil {
		return nil
	}
	var errs []error
	for _, o := range c.objects {
		if err := o.close(); err != nil {
			errs = append(errs, doing("close", o.name, err))
		}
	}
	return errors.Join(errs...)
}
