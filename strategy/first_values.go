package strategy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// The first values of a store's variables are what their initializers say, in the order in which
// the variables were made: each initializer that draws random numbers goes on from the state that
// the one before it left. Large variables are made on the devices, each device its own part, by a
// program for each kind of variable, and once in a process, see [makers]; small ones on the host,
// by GoMLX's own backend. Both draw the same bits, see [lowering.RandomPCG].

// largeVariable is the size in bytes from which on a variable is made on the devices: a program
// costs more than smaller ones do on the host. It does not depend on the devices, so that the
// numbers do not.
const largeVariable = 64 << 10

// longestInitializer bounds the text of a program that makes a value: one that is longer has the
// value in its text.
const longestInitializer = 1 << 20

// FirstValues describes the making of the first values of a store's variables. Variables that had a
// value before, from a checkpoint for example, do not count.
type FirstValues struct {
	// OnDevices is the number of variables that were made on the devices, the large ones, and
	// OnHost the number of those that were made on the host.
	OnDevices, OnHost int
	// Programs is the number of programs that were compiled: one for all variables of one shape,
	// split and initializer.
	Programs int
	// Lowering is the time of tracing and lowering the programs, Compiling that of compiling them,
	// Making the rest.
	Lowering, Compiling, Making time.Duration
}

// Total returns the sum of the times.
func (f FirstValues) Total() time.Duration { return f.Lowering + f.Compiling + f.Making }

// FirstValues returns what making first values took so far.
func (vs *Variables) FirstValues() FirstValues {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.firsts
}

// maker makes first values. It has the turn of the store.
type maker struct {
	vs       *Variables
	pending  []*model.Variable // small ones that wait to be made together
	programs map[[sha256.Size]byte]*valueProgram
	traced   map[*model.Variable]*tracedInitializer // of the large ones
	agreed   bool                                   // on the state of random numbers, over the processes
	copies   valueCopies
	took     FirstValues
}

// initialize makes the first values of the store's variables that have none, here or in the store.
func (vs *Variables) initialize(ctx context.Context) error {
	ctx, done, err := vs.exclusive(ctx)
	if err != nil {
		return fault.Of("waiting for the store", err, "")
	}
	defer done()
	var missing []*model.Variable
	for v := range vs.store.IterVariables() {
		if placed, ok := vs.Lookup(v.Path()); !v.HasValue() && (!ok || placed.waiting.Load() != nil) {
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return vs.making(ctx, func(m *maker) error {
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

// making runs f with a maker and counts its time. The variables have the values that were made,
// also if f fails.
func (vs *Variables) making(ctx context.Context, f func(m *maker) error) error {
	start := time.Now()
	m := &maker{vs: vs, programs: map[[sha256.Size]byte]*valueProgram{}, traced: map[*model.Variable]*tracedInitializer{},
		copies: valueCopies{strategy: vs.strategy}}
	err := f(m)
	err = errors.Join(err, m.copies.finish(ctx))
	for _, p := range m.programs {
		if p.executable != nil {
			err = errors.Join(err, p.executable.Close())
		}
	}
	m.took.Making = time.Since(start) - m.took.Lowering - m.took.Compiling
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.firsts.OnDevices += m.took.OnDevices
	vs.firsts.OnHost += m.took.OnHost
	vs.firsts.Programs += m.took.Programs
	vs.firsts.Lowering += m.took.Lowering
	vs.firsts.Compiling += m.took.Compiling
	vs.firsts.Making += m.took.Making
	return err
}

// make makes the value of a variable, or puts it off to be made with others.
func (m *maker) make(ctx context.Context, v *model.Variable) error {
	init := initial.Of(v)
	if init == nil {
		return fault.New(ValueError, fmt.Sprintf("variable %q", v.Path()), "give it a value or an initializer", "it has no value and no initializer")
	}
	if v.Shape().ByteSize() < largeVariable {
		m.pending = append(m.pending, v)
		return nil
	}
	placed, err := m.vs.variable(v.Path())
	if err != nil {
		return err
	}
	traced := m.traced[v]
	if traced == nil { // what cannot be lowered is made as GoMLX makes it
		m.pending = append(m.pending, v)
		return m.flush(ctx)
	}
	var state *tensors.Tensor
	if traced.draws {
		// The numbers follow those of the variables before.
		if err := m.flush(ctx); err != nil {
			return err
		}
		if state, err = m.state(ctx); err != nil {
			return err
		}
	}
	next, err := m.onDevices(ctx, placed, traced, state)
	if err != nil {
		return err
	}
	if next != nil {
		if err := m.setState(next); err != nil {
			return err
		}
	}
	return v.SetValue(newRecipe(m.vs.store, init, v.Shape(), state))
}

// again makes a value that was made on other devices before.
func (m *maker) again(ctx context.Context, placed *Variable, r *recipe) error {
	start := time.Now()
	traced, err := m.vs.strategy.traceInitializer(m.vs.store, r.init, placed)
	m.took.Lowering += time.Since(start)
	if err != nil {
		return err
	}
	if err := m.compile(ctx, []*tracedInitializer{traced}); err != nil {
		return err
	}
	var state *tensors.Tensor
	if traced.draws {
		state = r.state
	}
	_, err = m.onDevices(ctx, placed, traced, state)
	return err
}

// state is where the store's random numbers stand: on all processes where they stand on the first
// one.
func (m *maker) state(ctx context.Context) (*tensors.Tensor, error) {
	store, path := m.vs.store, model.JoinPath("/", model.RNGStateVariableName)
	v := store.GetVariable(path)
	if v == nil || !v.HasValue() {
		if err := store.ResetRNGState(); err != nil {
			return nil, err
		}
		v = store.GetVariable(path)
	}
	value, err := v.Value()
	if err != nil {
		return nil, err
	}
	words, err := tensors.CopyFlatData[uint64](value)
	if err != nil {
		return nil, err
	}
	if s := m.vs.strategy; s.processes.several() && !m.agreed {
		m.agreed = true
		var mine []byte
		for _, w := range words {
			mine = binary.LittleEndian.AppendUint64(mine, w)
		}
		first, err := s.BroadcastBytes(ctx, "the state of random numbers", mine)
		if err != nil {
			return nil, err
		}
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(first[8*i:])
		}
		if err := v.SetValue(tensors.FromFlatDataAndDimensions(words, len(words))); err != nil {
			return nil, err
		}
	}
	return tensors.FromFlatDataAndDimensions(words, len(words)), nil
}

func (m *maker) setState(next *tensors.Tensor) error {
	return m.vs.store.GetVariable(model.JoinPath("/", model.RNGStateVariableName)).SetValue(next)
}

// flush makes the values that were put off.
func (m *maker) flush(ctx context.Context) error {
	if len(m.pending) == 0 {
		return nil
	}
	list := m.pending
	m.pending = nil
	values, next, err := onHost(m.vs.store, list, func() (*tensors.Tensor, error) { return m.state(ctx) })
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

// take gives a variable its first buffers, unless it got others meanwhile.
func (v *Variable) take(fresh []*pjrt.Buffer) error {
	v.strategy.launch.Lock()
	defer v.strategy.launch.Unlock()
	if err := v.live(); err != nil {
		return errors.Join(err, closeAll(fresh))
	}
	if v.buffers != nil {
		return closeAll(fresh)
	}
	v.buffers = fresh
	v.waiting.Store(nil)
	return nil
}
