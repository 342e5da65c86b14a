package first

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
	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// largeVariable is the size in bytes from which on a variable is made on the devices: a program
// costs more than smaller ones do on the host. It does not depend on the devices, so that the
// numbers do not.
const largeVariable = 64 << 10

// longestInitializer bounds the text of a program that makes a value: one that is longer has the
// value in its text.
const longestInitializer = 1 << 20

// Figures say what making values took, as strategy.FirstValues does.
type Figures struct {
	OnDevices, OnHost, Programs int
	Lowering, Compiling, Making time.Duration
}

// Add adds those of another run.
func (f *Figures) Add(o Figures) {
	f.OnDevices, f.OnHost, f.Programs = f.OnDevices+o.OnDevices, f.OnHost+o.OnHost, f.Programs+o.Programs
	f.Lowering, f.Compiling, f.Making = f.Lowering+o.Lowering, f.Compiling+o.Compiling, f.Making+o.Making
}

// Options say where values are made, and for which variables.
type Options struct {
	Machine *engine.Runtime
	// Axes are the named axes of a replica's logical devices.
	Axes      []sharding.Axis
	Target    lowering.Target
	Precision lowering.Precision
	// Store has the variables. The caller has the turn of it.
	Store *model.Store
	// Place returns what the devices have of a variable of the store.
	Place func(path string) (Variable, error)
}

// Variable is a variable on the devices that waits for its first value.
type Variable struct {
	Path       string
	Shape      shapes.Shape
	Annotation logical.Annotation
	Over       spmd.ReplicaShard
	Layout     *engine.Layout
	// Take gives the variable its buffers, which it owns then.
	Take func(engine.Buffers) error
}

// maker makes first values.
type maker struct {
	Options
	pending  []*model.Variable // small ones that wait to be made together
	programs map[[sha256.Size]byte]*program
	traced   map[*model.Variable]*initializer // of the large ones
	agreed   bool                             // on the state of random numbers, over the processes
	copies   *engine.Broadcaster
	made     []arrival
	took     Figures
}

// arrival is a value on its way to a variable, which has it when its buffers are ready.
type arrival struct {
	variable Variable
	buffers  engine.Buffers
}

// Make makes the values of some variables, in their order. Those that were made are with their
// variables, also after an error.
func Make(ctx context.Context, o Options, missing []*model.Variable) (Figures, error) {
	return o.run(ctx, func(m *maker) error {
		if err := m.prepare(ctx, missing); err != nil {
			return err
		}
		for _, v := range missing {
			if err := m.make(ctx, v); err != nil {
				return fault.Of(fmt.Sprintf("variable %q", v.Path()), err, "")
			}
		}
		return m.flush(ctx)
	})
}

// Repeat computes an initial value on the devices of placed, as Make computed it on other devices. It
// returns ErrNotForDevices if the initializer cannot run on devices.
func Repeat(ctx context.Context, o Options, placed Variable, of *Value) (Figures, error) {
	return o.run(ctx, func(m *maker) error {
		start := time.Now()
		init, err := m.trace(of.init, placed)
		m.took.Lowering += time.Since(start)
		if err != nil {
			return err
		}
		if err := m.compile(ctx, []*initializer{init}); err != nil {
			return err
		}
		var state *tensors.Tensor
		if init.draws {
			state = of.state
		}
		_, err = m.onDevices(ctx, placed, init, state)
		return err
	})
}

// run runs f with a maker, and counts its time.
func (o Options) run(ctx context.Context, f func(m *maker) error) (Figures, error) {
	start := time.Now()
	m := &maker{Options: o, programs: map[[sha256.Size]byte]*program{}, traced: map[*model.Variable]*initializer{},
		copies: o.Machine.NewBroadcaster()}
	err := f(m)
	err = errors.Join(err, m.finish(ctx))
	for _, p := range m.programs {
		if p.executable != nil {
			err = errors.Join(err, p.executable.Close())
		}
	}
	m.took.Making = time.Since(start) - m.took.Lowering - m.took.Compiling
	return m.took, err
}

// finish gives the variables their values when those are there. A variable whose value is not
// whole, after an error, gets none: its store still knows how to make it.
func (m *maker) finish(ctx context.Context) error {
	var errs []error
	for _, x := range m.made {
		if !m.Machine.HasAllBuffers(x.buffers) { // starting the copies has said why
			errs = append(errs, x.buffers.Close())
		} else if err := x.buffers.Ready(ctx); err != nil {
			errs = append(errs, fault.Of(fmt.Sprintf("variable %q", x.variable.Path), err, ""), x.buffers.Close())
		} else {
			errs = append(errs, x.variable.Take(x.buffers))
		}
	}
	m.made = nil
	return errors.Join(errs...)
}

// make makes the value of a variable, or puts it off to be made with others.
func (m *maker) make(ctx context.Context, v *model.Variable) error {
	if initial.Initializer(v) == nil {
		return fault.New(errkind.ValueError, fmt.Sprintf("variable %q", v.Path()),
			"give it a value or an initializer", "it has no value and no initializer")
	}
	if v.Shape().ByteSize() < largeVariable {
		m.pending = append(m.pending, v)
		return nil
	}
	placed, err := m.Place(v.Path())
	if err != nil {
		return err
	}
	init := m.traced[v]
	if init == nil { // what cannot be lowered is made as GoMLX makes it
		m.pending = append(m.pending, v)
		return m.flush(ctx)
	}
	var state *tensors.Tensor
	if init.draws {
		// The numbers follow those of the variables before.
		if err := m.flush(ctx); err != nil {
			return err
		}
		if state, err = m.state(ctx); err != nil {
			return err
		}
	}
	next, err := m.onDevices(ctx, placed, init, state)
	if err != nil {
		return err
	}
	if next != nil {
		if err := m.setState(next); err != nil {
			return err
		}
	}
	return v.SetValue(newValue(m.Store, initial.Initializer(v), v.Shape(), state))
}

// state returns the state of the store's random number generator on the first process, on all
// processes.
func (m *maker) state(ctx context.Context) (*tensors.Tensor, error) {
	v := m.Store.GetVariable(StatePath)
	if v == nil || !v.HasValue() {
		if err := m.Store.ResetRNGState(); err != nil {
			return nil, err
		}
		v = m.Store.GetVariable(StatePath)
	}
	value, err := v.Value()
	if err != nil {
		return nil, err
	}
	words, err := tensors.CopyFlatData[uint64](value)
	if err != nil {
		return nil, err
	}
	if m.Machine.IsMultiProcess() && !m.agreed {
		m.agreed = true
		var mine []byte
		for _, w := range words {
			mine = binary.LittleEndian.AppendUint64(mine, w)
		}
		all, err := m.Machine.Gather(ctx, "broadcast the state of random numbers", mine)
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

func (m *maker) setState(next *tensors.Tensor) error {
	return m.Store.GetVariable(StatePath).SetValue(next)
}

// flush makes the values that were put off.
func (m *maker) flush(ctx context.Context) error {
	if len(m.pending) == 0 {
		return nil
	}
	list := m.pending
	m.pending = nil
	inits, of := make([]model.VariableInitializer, len(list)), make([]shapes.Shape, len(list))
	for i, v := range list {
		inits[i], of[i] = initial.Initializer(v), v.Shape()
	}
	values, next, err := valuesOnHost(m.Store, inits, of, func() (*tensors.Tensor, error) { return m.state(ctx) })
	if err != nil {
		return err
	}
	for i, v := range list {
		if err := v.SetValue(values[i]); err != nil {
			return err
		}
	}
	m.took.OnHost += len(list)
	if next != nil {
		return m.setState(next)
	}
	return nil
}
