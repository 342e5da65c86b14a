package initialization

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/modelfields"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// largeVariable is the minimum size in bytes of a variable whose value is computed on the devices.
// For a smaller variable the program would cost more than the computation on the host. The limit
// does not depend on the devices, so that the random numbers do not depend on them.
const largeVariable = 64 << 10

// maxProgramText is the maximum size of a program's text in bytes. A larger text contains the value
// itself.
const maxProgramText = 1 << 20

// Stats counts the variables that were initialized on devices and on the host, and the compiled
// programs. It measures the time of each phase. strategy.FirstValues has the same fields.
type Stats struct {
	OnDevices, OnHost, Programs int
	Lowering, Compiling, Making time.Duration
}

// Add adds the statistics of another run.
func (s *Stats) Add(o Stats) {
	s.OnDevices, s.OnHost, s.Programs = s.OnDevices+o.OnDevices, s.OnHost+o.OnHost, s.Programs+o.Programs
	s.Lowering, s.Compiling, s.Making = s.Lowering+o.Lowering, s.Compiling+o.Compiling, s.Making+o.Making
}

// Options describe the devices and the variables of an initialization.
type Options struct {
	Runtime *engine.Runtime
	// Axes are the named axes of a replica's logical devices.
	Axes      []sharding.Axis
	Target    lowering.Target
	Precision lowering.Precision
	// Store contains the variables. No other goroutine may use it during the initialization.
	Store *model.Store
	// Place returns how a variable of the store is sharded over the devices.
	Place func(path string) (Variable, error)
}

// Variable describes a variable on the devices that has no value yet.
type Variable struct {
	Path       string
	Shape      shapes.Shape
	Annotation logical.Annotation
	Over       spmd.ReplicaShard
	Layout     *engine.Layout
	// SetBuffers assigns the value, in buffers that the variable then owns.
	SetBuffers func(engine.Buffers) error
}

// runner is the state of one initialization.
type runner struct {
	Options
	small         []*model.Variable // small variables that are computed together by flush
	programs      map[[sha256.Size]byte]*program
	traced        map[*model.Variable]*initializer // by large variable
	isStateShared bool                             // all processes have the random number state of process 0
	broadcaster   *engine.Broadcaster
	computed      []computedValue
	stats         Stats
}

// computedValue is a value on the devices that is not assigned to its variable yet.
type computedValue struct {
	variable Variable
	buffers  engine.Buffers
}

// Run computes the initial values of the missing variables, in the given order, and assigns them to
// the variables. After an error, the variables whose values were already computed keep these
// values.
func Run(ctx context.Context, o Options, missing []*model.Variable) (Stats, error) {
	return o.run(ctx, func(r *runner) error {
		if err := r.prepare(ctx, missing); err != nil {
			return err
		}
		for _, v := range missing {
			if err := r.initialize(ctx, v); err != nil {
				return fault.Wrap(fmt.Sprintf("variable %q", v.Path()), err, "")
			}
		}
		return r.flush(ctx)
	})
}

// Repeat computes an initial value again that [Run] has computed on other devices. It computes the
// value on the devices of placed and assigns it. Repeat returns [ErrNotForDevices] if the
// initializer cannot run on devices.
func Repeat(ctx context.Context, o Options, placed Variable, value *Value) (Stats, error) {
	return o.run(ctx, func(r *runner) error {
		start := time.Now()
		init, err := r.trace(value.init, placed)
		r.stats.Lowering += time.Since(start)
		if err != nil {
			return err
		}
		if err := r.compile(ctx, []*initializer{init}); err != nil {
			return err
		}
		var state *tensors.Tensor
		if init.isRandom {
			state = value.state
		}
		_, err = r.computeOnDevices(ctx, placed, init, state)
		return err
	})
}

// run calls f to compute initial values. It then assigns the values to their variables and closes
// the programs.
func (o Options) run(ctx context.Context, f func(r *runner) error) (Stats, error) {
	start := time.Now()
	r := &runner{Options: o, programs: map[[sha256.Size]byte]*program{}, traced: map[*model.Variable]*initializer{},
		broadcaster: o.Runtime.NewBroadcaster()}
	err := f(r)
	err = errors.Join(err, r.finish(ctx))
	for _, p := range r.programs {
		if p.executable != nil {
			err = errors.Join(err, p.executable.Close())
		}
	}
	r.stats.Making = time.Since(start) - r.stats.Lowering - r.stats.Compiling
	return r.stats, err
}

// finish waits for the computed values and assigns them to their variables. After an error it
// discards incomplete values, which the store can compute again.
func (r *runner) finish(ctx context.Context) error {
	var errs []error
	for _, x := range r.computed {
		if !r.Runtime.HasAllBuffers(x.buffers) { // Broadcaster.Start has returned the error
			errs = append(errs, x.buffers.Close())
		} else if err := x.buffers.Ready(ctx); err != nil {
			errs = append(errs, fault.Wrap(fmt.Sprintf("variable %q", x.variable.Path), err, ""), x.buffers.Close())
		} else {
			errs = append(errs, x.variable.SetBuffers(x.buffers))
		}
	}
	r.computed = nil
	return errors.Join(errs...)
}

// initialize computes the initial value of a large variable. The value of a small variable is
// computed later, together with other small variables, by flush.
func (r *runner) initialize(ctx context.Context, v *model.Variable) error {
	if modelfields.Initializer(v) == nil {
		return fault.New(errkind.ValueError, fmt.Sprintf("variable %q", v.Path()),
			"give it a value or an initializer", "it has no value and no initializer")
	}
	if v.Shape().ByteSize() < largeVariable {
		r.small = append(r.small, v)
		return nil
	}
	placed, err := r.Place(v.Path())
	if err != nil {
		return err
	}
	init := r.traced[v]
	if init == nil { // the initializer cannot be lowered
		r.small = append(r.small, v)
		return r.flush(ctx)
	}
	var state *tensors.Tensor
	if init.isRandom {
		if err := r.flush(ctx); err != nil { // earlier variables draw their random numbers first
			return err
		}
		if state, err = r.state(ctx); err != nil {
			return err
		}
	}
	next, err := r.computeOnDevices(ctx, placed, init, state)
	if err != nil {
		return err
	}
	if next != nil {
		if err := r.setState(next); err != nil {
			return err
		}
	}
	return v.SetValue(newValue(r.Store, modelfields.Initializer(v), v.Shape(), state))
}

// state returns the state of the store's random number generator. The first call with several
// processes replaces the states of all processes by the state of process 0.
func (r *runner) state(ctx context.Context) (*tensors.Tensor, error) {
	v := r.Store.GetVariable(StatePath)
	if v == nil || !v.HasValue() {
		if err := r.Store.ResetRNGState(); err != nil {
			return nil, err
		}
		v = r.Store.GetVariable(StatePath)
	}
	value, err := v.Value()
	if err != nil {
		return nil, err
	}
	words, err := tensors.CopyFlatData[uint64](value)
	if err != nil {
		return nil, err
	}
	if r.Runtime.IsMultiProcess() && !r.isStateShared {
		r.isStateShared = true
		var mine []byte
		for _, w := range words {
			mine = binary.LittleEndian.AppendUint64(mine, w)
		}
		all, err := r.Runtime.Gather(ctx, "broadcast the state of random numbers", mine)
		if err != nil {
			return nil, err
		}
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(all[0][8*i:])
		}
		if err := v.SetValue(tensors.FromFlatDataAndDimensions(words, len(words))); err != nil {
			return nil, err
		}
	}
	return tensors.FromFlatDataAndDimensions(words, len(words)), nil
}

func (r *runner) setState(next *tensors.Tensor) error {
	return r.Store.GetVariable(StatePath).SetValue(next)
}

// flush computes the values of the small variables that initialize has postponed. It computes them
// on the host.
func (r *runner) flush(ctx context.Context) error {
	if len(r.small) == 0 {
		return nil
	}
	list := r.small
	r.small = nil
	inits, all := make([]model.VariableInitializer, len(list)), make([]shapes.Shape, len(list))
	for i, v := range list {
		inits[i], all[i] = modelfields.Initializer(v), v.Shape()
	}
	values, next, err := computeOnHost(r.Store, inits, all, func() (*tensors.Tensor, error) { return r.state(ctx) })
	if err != nil {
		return err
	}
	for i, v := range list {
		if err := v.SetValue(values[i]); err != nil {
			return err
		}
	}
	r.stats.OnHost += len(list)
	if next != nil {
		return r.setState(next)
	}
	return nil
}
