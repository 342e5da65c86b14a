package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// NewAheadOfTime returns a strategy over a described slice that need not be at
// hand. Steps are traced, lowered and compiled as on a live system, for the
// slice's real coordinates; nothing can run ([*AheadOfTimeError]). Variables get
// no first values and arguments no contents, so that a model may be larger than
// this machine; instead of a host tensor an argument may be its shape, a
// shapes.Shape of the whole batch.
//
// [Function.Compiled] gives the compiled step, also that of a training step (package train). A program
// that does not fit into the devices' memory is a [*MemoryError]. The slice stays
// the caller's; close the strategy before it.
func NewAheadOfTime(slice *system.Slice, opts Options) (*TPUStrategy, error) {
	if slice == nil {
		return nil, errors.New("strategy: there is no slice: it is nil; see the error of system.Describe")
	}
	s, err := newStrategy(slice.Topology(), opts)
	if err != nil {
		return nil, err
	}
	s.slice = slice
	return s, nil
}

// Slice returns the described slice that the strategy compiles for, or nil if it
// runs on a system.
func (s *TPUStrategy) Slice() *system.Slice { return s.slice }

// AheadOfTimeError is that something was to run, or to be read, on a slice that is
// only described.
type AheadOfTimeError struct {
	// Doing says what.
	Doing string
	// Slice is the slice's name.
	Slice string
}

func (e *AheadOfTimeError) Error() string {
	return fmt.Sprintf("strategy: %s: the strategy compiles ahead of time for %s, which is not here; open a system and use New to run", e.Doing, e.Slice)
}

// Kind is NotImplementedError.
func (*AheadOfTimeError) Kind() errkind.Kind { return errkind.NotImplementedError }

// Is matches errors.ErrUnsupported.
func (e *AheadOfTimeError) Is(target error) bool { return target == errors.ErrUnsupported }

// runnable refuses what needs devices.
func (s *TPUStrategy) runnable(doing string) error {
	if s.slice == nil {
		return nil
	}
	return &AheadOfTimeError{Doing: doing, Slice: s.slice.Facts().Name}
}

// abstract is a value without contents, in the place of a host argument. A local
// batch is that of this process's replicas.
func (s *TPUStrategy) abstract(shape shapes.Shape, splitBatch, local bool, a logical.Annotation) (Value, error) {
	if !shape.Ok() {
		return nil, fmt.Errorf("strategy: %s is no shape of an argument", shape)
	}
	dims := shape.Dimensions
	if splitBatch {
		var err error
		// Ahead of time there are no processes: the batch is the whole one.
		if dims, err = shareShape(dims, s.shares(local && s.slice == nil)); err != nil {
			return nil, err
		}
	}
	if _, err := s.layout(shape.DType, dims, a, splitBatch); err != nil {
		return nil, err
	}
	v, err := s.newValue(splitBatch, shape.DType, dims, a, nil)
	if err != nil {
		return nil, err
	}
	v.base().outline = true
	return v, nil
}

// aheadExecutable is one for devices that are not here.
type aheadExecutable struct{ *pjrt.Executable }

func (aheadExecutable) AddressableDevices() []*pjrt.Device { return nil }

func (aheadExecutable) Execute(context.Context, [][]*pjrt.Buffer, [][]*pjrt.Buffer, pjrt.ExecuteOptions) error {
	return &AheadOfTimeError{Doing: "running a program", Slice: "a described slice"}
}
