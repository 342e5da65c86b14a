package strategy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"golang.org/x/sync/semaphore"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/lowering"
)

// A large constant makes a program's text as large as the tensor, and XLA evaluates operations on it
// at compile time. A tensor of lowering.LargeConstant bytes or more that a step closes over is
// therefore an argument of the step's program. All programs with an equal constant share one
// internal variable. It is copied to the devices before the first run and freed with the last of
// these programs.

// sharedConstants stores each large constant of a strategy's steps once.
type sharedConstants struct {
	mu  sync.Mutex
	all map[constantKey]*sharedConstant
}

// constantKey is a hash of a constant's dtype, dimensions and elements.
type constantKey [sha256.Size]byte

// sharedConstant is a large constant of which each device has a copy.
type sharedConstant struct {
	*Variable
	key   constantKey
	users int // traces and programs; guarded by sharedConstants.mu
}

// hostConstant is a constant that is still in host memory and not yet on the devices.
type hostConstant struct {
	tensor *tensors.Tensor
	upload *semaphore.Weighted // one goroutine copies it
}

// acquire returns the shared constant with the given elements. It copies the elements only if no
// trace or program uses this constant yet. The caller must release the constant.
func (all *sharedConstants) acquire(s *TPUStrategy, shape shapes.Shape, elements []byte) (*sharedConstant, error) {
	key := constantKey(lowering.HashConstant(shape, elements))
	all.mu.Lock()
	defer all.mu.Unlock()
	c := all.all[key]
	if c == nil {
		tensor := tensors.FromShape(shape)
		if err := tensor.MutableBytes(func(dst []byte) { copy(dst, elements) }); err != nil {
			return nil, err
		}
		v := &Variable{strategy: s, path: "constant", dtype: shape.DType, shape: slices.Clone(shape.Dimensions),
			synchronization: OnWrite, unlisted: true}
		v.constant.Store(&hostConstant{tensor, semaphore.NewWeighted(1)})
		c = &sharedConstant{Variable: v, key: key}
		if all.all == nil {
			all.all = map[constantKey]*sharedConstant{}
		}
		all.all[key] = c
	}
	c.users++
	return c, nil
}

// release ends one use of each constant and frees the constants that are no longer used. The caller
// must hold engine.Runtime.Launch.
func (all *sharedConstants) release(constants []*sharedConstant) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	var errs []error
	for _, c := range constants {
		if c.users--; c.users == 0 {
			delete(all.all, c.key)
			errs = append(errs, c.release())
		}
	}
	return errors.Join(errs...)
}

// close frees all constants. The caller must hold engine.Runtime.Launch.
func (all *sharedConstants) close() (errs []error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, c := range all.all {
		errs = append(errs, c.release())
	}
	return errs
}

// releaseConstants releases the constants of a trace that did not result in a program.
func releaseConstants(s *TPUStrategy, constants []*sharedConstant) {
	if len(constants) == 0 {
		return
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	_ = s.constants.release(constants)
}

// uploadConstant copies a constant to the devices, unless another goroutine has already copied it.
func (v *Variable) uploadConstant(ctx context.Context, value *hostConstant) error {
	if err := value.upload.Acquire(ctx, 1); err != nil {
		return fault.Wrap("waiting for the copy of a "+v.Shape().String()+" constant to the devices",
			context.Cause(ctx), "")
	}
	defer value.upload.Release(1)
	if v.constant.Load() == nil {
		return nil
	}
	fresh, err := v.uploadValue(ctx, value.tensor)
	if err != nil {
		return err
	}
	if err := v.setInitialBuffers(fresh); err != nil {
		return err
	}
	v.constant.Store(nil)
	return nil
}

func (v *Variable) constantBytes(ctx context.Context) (data []byte, err error) {
	var tensor *tensors.Tensor
	if value := v.constant.Load(); value != nil {
		tensor = value.tensor
	} else if tensor, err = v.Local(ctx, v.strategy.LocalReplicas()[0]); err != nil {
		return nil, err
	}
	err = tensor.ConstBytes(func(src []byte) { data = bytes.Clone(src) })
	return data, err
}

func constantName(i int) string { return fmt.Sprintf("constant_%d", i) }

// constant implements [spmd.Options.Constant].
func (t *trace) constant(shape shapes.Shape, elements []byte) (name string, err error) {
	s := t.f.strategy
	c, err := s.constants.acquire(s, shape, elements)
	if err != nil {
		return "", err
	}
	i := slices.Index(t.constants, c)
	if i < 0 {
		i = len(t.constants)
		t.constants = append(t.constants, c)
	} else if err := s.constants.release([]*sharedConstant{c}); err != nil { // frees nothing, because the trace uses it
		return "", err
	}
	return constantName(i), nil
}

// writeConstants writes a hash of each constant to w. Processes compare these hashes to detect
// different programs, because the text of a program does not contain its large constants.
func (t *trace) writeConstants(w io.Writer) {
	for _, c := range t.constants {
		fmt.Fprintf(w, "%x\n", c.key)
	}
}
