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
	// Shape is the shape of the saved value. It is invalid if GoMLX does not support the file's dtype.
	Shape     shapes.Shape
	Trainable bool
	// Synchronization and Aggregation are the rules that combined the variable's components.
	Synchronization strategy.VariableSynchronization
	Aggregation     strategy.VariableAggregation
}

// Checkpoint is an open checkpoint. It is safe for concurrent use, except that no other call may
// run concurrently with Close or after it.
type Checkpoint struct {
	path      string           // of the tensor file, or of the manifest of a sharded checkpoint
	sharded   *shardedManifest // nil for a single file
	objects   []*object        // files that contain the variables' regions
	variables []variable       // in saved order
	metadata  map[string]string
	step      int64
}

// variable describes a saved variable and where its data is stored.
type variable struct {
	Info
	dtype         safetensors.DType
	bytes         int64
	elementSize   int64           // bytes of an element
	wholeChecksum *singleChecksum // nil if each block has its own checksum, or if there are no checksums
	regions       []region
}

// newFileVariable describes a variable that is stored completely in one tensor file.
func newFileVariable(info Info, t safetensors.Info, data int64) variable {
	g := region{start: make([]int, len(t.Shape)), size: t.Shape, offset: data + t.Offset, bytes: t.Bytes}
	return variable{Info: info, dtype: t.DType, bytes: t.Bytes, elementSize: int64(t.DType.Bits() / 8),
		regions: []region{g}}
}

// FileOptions configures [OpenFile]. The zero value is valid.
type FileOptions struct {
	// Path returns the path of a variable for the name of its tensor. The default prepends a slash.
	Path func(tensor string) string
}

// OpenFile opens a safetensors file of any program as a checkpoint. The checkpoint's step is -1.
// Because it has no checksums, Verify only checks the file format. If the path is a URL, a pipe, a
// device or a directory, OpenFile returns a [*PathError].
func OpenFile(path string, opts FileOptions) (*Checkpoint, error) {
	opened, info, err := files.Open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	c, file, err := openTensorFile(context.Background(), localFile{opened, info.Size()}, path)
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
			return nil, variableError(name, "two tensors have this path", "give them different ones with FileOptions.Path", nil)
		}
		seen[name] = true
		shape, _ := specShape(t.Spec)
		c.variables = append(c.variables, newFileVariable(Info{Path: name, Shape: shape, Trainable: true,
			Synchronization: strategy.OnWrite}, t, file.DataOffset()))
	}
	return c, nil
}

// openTensorFile returns a checkpoint that consists of one tensor file. Closing the checkpoint
// closes the parameter opened.
func openTensorFile(ctx context.Context, opened storage.Object, path string) (*Checkpoint, *safetensors.File, error) {
	file, err := safetensors.New(storage.ReaderAt(ctx, opened), opened.Size())
	if err != nil {
		opened.Close()
		return nil, nil, &CorruptError{File: path, Reason: "no tensor file", Err: err}
	}
	o := &object{name: path, size: opened.Size()}
	o.setOpened(opened)
	return &Checkpoint{path: path, objects: []*object{o}}, file, nil
}

// readError converts the error of a failed read. It returns a [*CorruptError] by default. If the
// read failed because this process lacks permission or resources, the file may be intact, and
// readError returns another error.
func readError(path string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &CorruptError{File: path, Reason: "the file is missing", Err: err}
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, os.ErrPermission), errors.Is(err,
		syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return wrapError("read", "", err)
	}
	if errors.As(err, new(*files.Error)) { // a link, a pipe or a device
		return &CorruptError{File: path, Reason: "it cannot be read", Err: err}
	}
	switch errkind.KindOf(err) { // the store did not answer, so that damage is not known
	case errkind.UnavailableError, errkind.PermissionDeniedError, errkind.FailedPreconditionError,
		errkind.DeadlineExceededError, errkind.CancelledError:
		return wrapError("read", "", err)
	}
	return &CorruptError{File: path, Reason: "it cannot be read", Err: err}
}

// Step returns the step at which the checkpoint was saved, or -1 for a file opened by [OpenFile].
func (c *Checkpoint) Step() int64 { return c.step }

// Metadata returns a copy of the checkpoint's metadata.
func (c *Checkpoint) Metadata() map[string]string { return maps.Clone(c.metadata) }

// Variables describes the saved variables, in the order in which they were saved. It corresponds to
// tf.train.list_variables.
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
			errs = append(errs, wrapError("close", o.name, err))
		}
	}
	return errors.Join(errs...)
}
