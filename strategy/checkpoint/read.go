package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// Verify reads the whole checkpoint and compares it with its checksums. Damage is a
// [*CorruptError], which names the variable if a variable is damaged.
func (c *Checkpoint) Verify(ctx context.Context) error {
	if c.raw == nil {
		return errNotOpened
	}
	if c.manifest == nil {
		return nil
	}
	var sum checksum
	piece := make([]byte, 1<<20)
	for at := int64(0); at < c.manifest.Bytes; {
		if err := ctx.Err(); err != nil {
			return doing("verify", c.path, err)
		}
		p := piece[:min(int64(len(piece)), c.manifest.Bytes-at)]
		if err := c.read(p, at); err != nil {
			return err
		}
		sum = sum.plus(p)
		at += int64(len(p))
	}
	if sum == c.manifest.CRC32C {
		return nil
	}
	for _, v := range c.variables {
		if err := c.stream(ctx, v, make([]byte, min(v.bytes, int64(len(piece)))), nil); err != nil {
			return err
		}
	}
	return &CorruptError{File: c.path, Reason: fmt.Sprintf("its checksum is %s, %s was written", sum, c.manifest.CRC32C)}
}

// errNotOpened is the error of the zero Checkpoint.
var errNotOpened = error(&errkind.Fault{Match: ErrClosed, Reason: "the checkpoint was not opened", Hint: "use Open"})

func (c *Checkpoint) closed() error {
	return &errkind.Fault{Match: ErrClosed, Reason: c.path, Hint: "open it again"}
}

func (c *Checkpoint) read(p []byte, at int64) error {
	_, err := c.raw.ReadAt(p, at)
	switch {
	case errors.Is(err, io.EOF):
		return &CorruptError{File: c.path, Reason: "it was cut short"}
	case errors.Is(err, os.ErrClosed):
		return c.closed()
	case err != nil:
		return unreadable(c.path, err)
	}
	return nil
}

// stream reads a variable through p, piece by piece, and compares its checksum. With whole, p has
// all its bytes and keeps them.
func (c *Checkpoint) stream(ctx context.Context, v variable, p []byte, whole []byte) error {
	var sum checksum
	for at := int64(0); at < v.bytes; {
		if err := ctx.Err(); err != nil {
			return &VariableError{Path: v.Path, Reason: "not read", Err: err}
		}
		n := min(pieceBytes, v.bytes-at)
		into := p
		if whole != nil {
			into = whole[at:]
		}
		n = min(n, int64(len(into)))
		if err := c.file.ReadAt(v.tensor, into[:n], at); err != nil {
			if errors.Is(err, os.ErrClosed) {
				return c.closed()
			}
			if errors.Is(err, safetensors.ErrFormat) {
				return &CorruptError{File: c.path, Variable: v.Path, Reason: "not read", Err: err}
			}
			if corrupt := (*CorruptError)(nil); errors.As(unreadable(c.path, err), &corrupt) {
				corrupt.Variable = v.Path
				return corrupt
			}
			return &VariableError{Path: v.Path, Reason: "not read", Err: err}
		}
		sum = sum.plus(into[:n])
		at += n
	}
	if v.sum != nil && *v.sum != sum {
		return &CorruptError{File: c.path, Variable: v.Path, Reason: fmt.Sprintf("its checksum is %s, %s was written", sum, *v.sum)}
	}
	return nil
}

// Tensor reads one saved value and compares its checksum, as tf.train.load_variable does. The
// caller owns the tensor. The error of a path that was not saved matches [ErrNone].
func (c *Checkpoint) Tensor(ctx context.Context, path string) (*tensors.Tensor, error) {
	if c.raw == nil {
		return nil, errNotOpened
	}
	i := slices.IndexFunc(c.variables, func(v variable) bool { return v.Path == path })
	if i < 0 {
		return nil, none("give the path of one of Checkpoint.Variables", "no variable %q in %s", path, c.path)
	}
	return c.tensor(ctx, c.variables[i])
}

func (c *Checkpoint) tensor(ctx context.Context, v variable) (*tensors.Tensor, error) {
	if !v.Shape.Ok() {
		t, _ := c.file.Tensor(v.tensor)
		return nil, &VariableError{Path: v.Path, Reason: fmt.Sprintf("GoMLX has no tensors of the file's dtype %s", t.DType),
			Hint: "convert the tensor in the file to another dtype"}
	}
	t := tensors.FromShape(v.Shape)
	if v.bytes == 0 {
		return t, nil
	}
	var failed error
	err := t.MutableBytes(func(data []byte) {
		failed = c.stream(ctx, v, nil, data)
		if failed != nil || v.Shape.DType != dtypes.Bool {
			return
		}
		// A Go bool of another byte is neither true nor false.
		if i := slices.IndexFunc(data, func(b byte) bool { return b > 1 }); i >= 0 {
			failed = &CorruptError{File: c.path, Variable: v.Path, Reason: fmt.Sprintf("truth value %d is the byte %d", i, data[i])}
		}
	})
	if err != nil {
		return nil, &VariableError{Path: v.Path, Reason: "not read", Err: err}
	}
	if failed != nil {
		return nil, failed
	}
	return t, nil
}
