package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Info describes a saved variable.
type Info struct {
	Path string
	// Shape is the dtype and the dimensions of the saved value. It is invalid if
	// the file has a dtype that GoMLX does not.
	Shape     shapes.Shape
	Trainable bool
	// Synchronization and Aggregation are those of the variable it was saved from:
	// how its components became one value.
	Synchronization strategy.VariableSynchronization
	Aggregation     strategy.VariableAggregation
}

// Checkpoint is an open checkpoint. It is safe for concurrent use, but for Close,
// which must come last.
type Checkpoint struct {
	path      string // of the tensor file
	raw       *os.File
	file      *safetensors.File
	manifest  *manifest  // nil for a file without one
	variables []variable // in the order of the file
	order     []int      // their indices in the order in which they were saved
	metadata  map[string]string
	step      int64
}

// variable is a saved variable and its tensor.
type variable struct {
	Info
	tensor string
	bytes  int64
	sum    *checksum // nil if not known
}

// Open opens the checkpoint in a directory. It reads what the checkpoint says of
// itself and compares that with the tensor file's header and length; the tensors
// are read later. Errors about damage match [ErrCorrupt], so do files that cannot be
// read and what is no file; a checkpoint of a later version is a [*VersionError];
// where there is no such directory, or it is one of checkpoints ([OpenDirectory]),
// they match [ErrNone]. A URL is a [*PathError]. Close it after use.
func Open(dir string) (*Checkpoint, error) {
	if err := files.Local(dir); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	} else if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	path := filepath.Join(dir, manifestFile)
	data, err := readLimited(path)
	if errors.Is(err, os.ErrNotExist) {
		if steps, listing := stepsIn(dir); listing == nil && len(steps) > 0 {
			return nil, fmt.Errorf("%w: %s is a directory of checkpoints; open it with OpenDirectory", ErrNone, dir)
		}
	}
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(data)
	if later := (*VersionError)(nil); errors.As(err, &later) {
		later.File = path
		return nil, later
	}
	if err != nil {
		return nil, &CorruptError{File: path, Reason: "no manifest", Err: err}
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

// FileOptions say how a tensor file is read. The zero value works.
type FileOptions struct {
	// Path gives the variable's path of a tensor's name; if nil, it is the name
	// after a slash.
	Path func(tensor string) string
}

// OpenFile opens a safetensors file of any origin as a checkpoint. Its step is -1,
// and without checksums only its form can be verified. A path that is a URL, a pipe, a
// device or a directory is a [*PathError].
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
		c.variables = append(c.variables, variable{Info: Info{Path: name, Shape: shape, Trainable: true, Synchronization: strategy.OnWrite}, tensor: t.Name, bytes: t.Bytes})
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
	return &Checkpoint{path: path, raw: raw, file: file}, nil
}

// describe takes over the manifest, if the file is the one that it describes.
func (c *Checkpoint) describe(m *manifest) error {
	corrupt := func(format string, args ...any) error {
		return &CorruptError{File: c.path, Reason: fmt.Sprintf(format, args...)}
	}
	info, err := c.raw.Stat()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if info.Size() != m.Bytes {
		return corrupt("it has %d bytes, %d were written", info.Size(), m.Bytes)
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
		c.variables = append(c.variables, variable{tensor: t.Name, bytes: t.Bytes, sum: &v.CRC32C, Info: Info{
			Path: v.Path, Shape: shape, Trainable: v.Trainable, Synchronization: synchronization, Aggregation: aggregation,
		}})
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

// unreadable is the error of a file of a checkpoint that cannot be read. It is damage,
// unless the file may be whole and it is this process that may not read it, or that has
// no means left to.
func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &CorruptError{File: path, Reason: "the file is missing", Err: err}
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("checkpoint: %w", err)
	}
	return &CorruptError{File: path, Reason: "it cannot be read", Err: err}
}

// Step returns the step it was saved at; -1 if it is a bare file.
func (c *Checkpoint) Step() int64 { return c.step }

// Metadata returns what was saved with it.
func (c *Checkpoint) Metadata() map[string]string { return maps.Clone(c.metadata) }

// Variables describes the saved variables, in the order of the file.
func (c *Checkpoint) Variables() []Info {
	out := make([]Info, len(c.variables))
	for i, v := range c.variables {
		out[i] = v.Info
	}
	return out
}

// Close closes the files. A second Close does nothing.
func (c *Checkpoint) Close() error {
	if c.raw == nil {
		return nil
	}
	if err := c.raw.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
