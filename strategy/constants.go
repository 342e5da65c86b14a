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

// A large constant in a program makes the program's text as large as the tensor, and XLA evaluates
// the operations on it while it compiles. A tensor of lowering.LargeConstant bytes or more that a
// step closes over is therefore an argument of the step's program. It is stored in an internal
// variable that all programs of the strategy with an equal constant share. It is copied to the
// devices once, before the first run, and freed when the last of these programs is closed.

// sharedConstants has the large constants of a strategy's traces and programs.
type sharedConstants struct {
	mu  sync.Mutex
	all map[constantKey]*sharedConstant
}

// constantKey is a hash of a constant's dtype, dimensions and elements.
type constantKey [sha256.Size]byte

// sharedConstant is a large constant, which is replicated on all devices.
type sharedConstant struct {
	*Variable
	key   constantKey
	users int // traces and programs; guarded by sharedConstants.mu
}

// hostConstant is the value of a constant that is not on the devices yet.
type hostConstant struct {
	tensor *tensors.Tensor
	upload *semaphore.Weighted // one goroutine copies it
}

// acquire returns the constant of a shape with these elements, which it copies. The caller releases
// it.
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

// release ends the use of constants by a trace or a program. It frees the constants that have no other
// user. The caller holds engine.Runtime.Launch.
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

// close frees all constants. The caller holds engine.Runtime.Launch.
func (all *sharedConstants) close() (errs []error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, c := range all.all {
		errs = append(errs, c.release())
	}
	return errs
}

// releaseConstants ends the use of constants by a trace that has no program.
func releaseConstants(s *TPUStrategy, constants []*sharedConstant) {
	if len(constants) == 0 {
		return
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	_ = s.constants.release(constants)
}

// uploadConstant copies a constant to the devices, if no other goroutine has done so.
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

// constantBytes returns a copy of the elements of a constant.
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

// writeConstants writes the hashes of the constants. Processes compare them in addition to the
// program's text, which does not depend on the elements of the constants.
func (t *trace) writeConstants(w io.Writer) {
	for _, c := range t.constants {
		fmt.Fprintf(w, "%x\n", c.key)
	}
}
