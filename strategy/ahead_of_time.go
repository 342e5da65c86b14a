package strategy

import (
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// NewAheadOfTime returns a strategy over a slice that is described and need not be at hand. Steps
// are traced, lowered and compiled as on a live system, for the slice's real coordinates. A call
// that needs the devices, such as [Function.Run], returns [ErrAheadOfTime]. Variables get no
// first values and arguments no contents, so that a model may be larger than this machine. Instead
// of a host tensor an argument may be its shape, a [shapes.Shape] of the whole batch.
//
// [Function.Compiled] returns the compiled step, and train.Step.Compiled that of a training step.
// Where the program does not fit into the memory of a device, they return a [*MemoryError]. The
// slice stays the caller's: close the strategy before it. Errors are those of [New].
func NewAheadOfTime(slice *system.Slice, opts Options) (*TPUStrategy, error) {
	if slice == nil {
		return nil, fault.New(errkind.ValueError, "new ahead of time", "see the error of system.Describe", "there is no slice: it is nil")
	}
	if err := slice.Check(); err != nil {
		return nil, fault.Of("new ahead of time", err, "")
	}
	s, err := newStrategy(slice.Topology(), opts)
	if err != nil {
		return nil, err
	}
	s.slice = slice
	s.machine = mesh.Describe(slice, s.opts.machine(s.assignment))
	return s, nil
}

// Slice returns the described slice that the strategy compiles for, or nil if the strategy runs on
// a system.
func (s *TPUStrategy) Slice() *system.Slice { return s.slice }

// abstract is a value without contents, in the place of a batch, or of a value that is not split.
func (b batchShare) abstract(shape shapes.Shape, split bool) (Value, error) {
	if !shape.Ok() {
		return nil, fault.New(errkind.ValueError, "shape of an argument", "give the shape of the whole batch, of known dimensions", "%s is no shape of a tensor", shape)
	}
	dims := shape.Dimensions
	if split {
		var err error
		if dims, err = shareShape(dims, b.count()); err != nil {
			return nil, err
		}
	}
	if _, err := b.layout(shape.DType, dims, b.annotation, split); err != nil {
		return nil, err
	}
	return b.newValue(split, shape.DType, dims, b.annotation, nil)
}
