package strategy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/errgroup"

	"tpustrategy/lowering/module"
	"tpustrategy/pjrt"
	"tpustrategy/strategy/internal/initial"
	"tpustrategy/tpu/system"
)

// The first values of a store's variables are what their initializers say, in the order
// in which the variables were made: each initializer that draws random numbers goes on
// from the state that the one before it left. Large variables are made on the devices,
// each device its own part, by a program for each kind of variable; small ones on the
// host, by GoMLX's own backend. Both draw the same bits, see [lowering.RandomPCG].

// largeVariable is the size in bytes from which on a variable is made on the devices: a
// program costs more than smaller ones do on the host. It does not depend on the
// devices, so that the numbers do not.
const largeVariable = 64 << 10

// longestInitializer bounds the text of a program that makes a value: one that is longer
// has the value in its text.
const longestInitializer = 1 << 20

// FirstValues says what it took to make the first values of a store's variables.
// Variables that had a value, from a checkpoint say, are not among them.
type FirstValues struct {
	// OnDevices and OnHost are how many variables were made where: the large ones on
	// the devices.
	OnDevices, OnHost int
	// Programs is how many programs were compiled: one for all variables of a shape, a
	// split and an initializer.
	Programs int
	// Lowering, Compiling and Making are the times that it took: the programs' tracing
	// and their compilation, and the rest.
	Lowering, Compiling, Making time.Duration
}

// Total is the time of all.
func (f FirstValues) Total() time.Duration { return f.Lowering + f.Compiling + f.Making }

// FirstValues returns what it took to make first values so far.
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
	took     FirstValues
}

// valueProgram is a program that makes the value of a variable.
type valueProgram struct {
	executable system.Executable
	module     *module.Module
	rows       []int
}

// initialize makes the first values of the store's variables that have none, here or in
// the store.
func (vs *Variables) initialize(ctx context.Context) error {
	ctx, done, err := vs.exclusive(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the store: %w", err)
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
	return vs.making(func(m *maker) error {
		if err := m.prepare(ctx, missing); err != nil {
			return err
		}
		for _, v := range missing {
			if err := m.make(ctx, v); err != nil {
				return fmt.Errorf("variable %q: %w", v.Path(), err)
			}
		}
		return m.flush(ctx)
	})
}

// making runs f with a maker and counts its time.
func (vs *Variables) making(f func(m *maker) error) error {
	start := time.Now()
	m := &maker{vs: vs, programs: map[[sha256.Size]byte]*valueProgram{}, traced: map[*model.Variable]*tracedInitializer{}}
	err := f(m)
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
		return errors.New("it has no value and no initializer")
	}
	if v.Shape().ByteSize() < largeVariable {
		m.pending = append(m.pending, v)
		return nil
	}
	placed, err := m.vs.place(v.Path())
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
	traced, err := m.vs.strategy.traceInitializer(m.vs.store, r.init, r.shape, placed.annotation)
	m.took.Lowering += time.Since(start)
	if err != nil {
		return err
	}
	if err := m.compile(ctx, []*module.Module{traced.module}); err != nil {
		return err
	}
	var state *tensors.Tensor
	if traced.draws {
		state = r.state
	}
	_, err = m.onDevices(ctx, placed, traced, state)
	return err
}

// state is where the store's random numbers stand: on all processes where they stand on
// the first one.
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
	if s := m.vs.strategy; s.hosts.several() && !m.agreed {
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

// onDevices runs the program that makes a variable's value, and returns the state of
// random numbers after it, if it draws some.
func (m *maker) onDevices(ctx context.Context, placed *Variable, traced *tracedInitializer, state *tensors.Tensor) (next *tensors.Tensor, err error) {
	s := m.vs.strategy
	p := m.programs[sha256.Sum256(traced.module.Text)]
	var in []*pjrt.Buffer
	if state != nil {
		l, err := s.layout(state.DType(), state.Shape().Dimensions, traced.module.Arguments[0].Annotation, false)
		if err != nil {
			return nil, err
		}
		in = make([]*pjrt.Buffer, len(s.devices))
		defer func() { err = errors.Join(err, closeAll(in)) }()
		if err := s.upload(ctx, &l, func(_ int, use func([]byte)) error { return state.ConstBytes(use) }, in); err != nil {
			return nil, err
		}
	}
	args, outs := make([][]*pjrt.Buffer, len(p.rows)), make([][]*pjrt.Buffer, len(p.rows))
	for row, d := range p.rows {
		if in != nil {
			args[row] = []*pjrt.Buffer{in[d]}
		}
		outs[row] = make([]*pjrt.Buffer, len(p.module.Results))
	}
	fresh, after := make([]*pjrt.Buffer, len(s.devices)), make([]*pjrt.Buffer, len(s.devices))
	s.launch.Lock()
	if err = s.check(); err == nil {
		err = p.executable.Execute(ctx, args, outs, pjrt.ExecuteOptions{})
	}
	s.launch.Unlock()
	for row, d := range p.rows {
		fresh[d] = outs[row][0]
		if len(outs[row]) > 1 {
			after[d] = outs[row][1]
		}
	}
	defer func() { err = errors.Join(err, closeAll(after)) }()
	if err == nil {
		err = ready(ctx, fresh)
	}
	if err == nil && state != nil {
		next, err = stateOf(ctx, after)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(fresh))
	}
	m.took.OnDevices++
	return next, placed.take(fresh)
}

// stateOf reads the state of random numbers from a device.
func stateOf(ctx context.Context, buffers []*pjrt.Buffer) (*tensors.Tensor, error) {
	i := slices.IndexFunc(buffers, func(b *pjrt.Buffer) bool { return b != nil })
	if i < 0 {
		return nil, errors.New("no device of this process made the value")
	}
	next := tensors.FromFlatDataAndDimensions(make([]uint64, 3), 3)
	var failed error
	if err := next.MutableBytes(func(data []byte) { failed = buffers[i].ToHost(ctx, data) }); err != nil {
		return nil, err
	}
	return next, failed
}

// prepare traces the initializers of the large variables and compiles their programs.
func (m *maker) prepare(ctx context.Context, missing []*model.Variable) error {
	start := time.Now()
	var modules []*module.Module
	for _, v := range missing {
		init := initial.Of(v)
		if init == nil || v.Shape().ByteSize() < largeVariable {
			continue
		}
		placed, err := m.vs.place(v.Path())
		if err != nil {
			return err
		}
		if traced, err := m.vs.strategy.traceInitializer(m.vs.store, init, v.Shape(), placed.annotation); err == nil {
			m.traced[v] = traced
			modules = append(modules, traced.module)
		}
	}
	m.took.Lowering += time.Since(start)
	return m.compile(ctx, modules)
}

// compile compiles programs that make values, side by side, and each text once. All
// processes must have the same ones.
func (m *maker) compile(ctx context.Context, modules []*module.Module) error {
	start, s := time.Now(), m.vs.strategy
	var fresh []*valueProgram
	var texts []byte
	for _, mod := range modules {
		key := sha256.Sum256(mod.Text)
		if m.programs[key] == nil {
			p := &valueProgram{module: mod}
			m.programs[key] = p
			fresh, texts = append(fresh, p), append(texts, key[:]...)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := s.agree(ctx, "the first values of variables", fmt.Sprintf("%d programs", len(fresh)), texts); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range fresh {
		group.Go(func() (err error) {
			if p.executable, err = s.buildOnce(ctx, "the first values of variables", p.module); err != nil {
				return err
			}
			p.rows, err = s.rows(p.executable)
			return err
		})
	}
	err := group.Wait()
	m.took.Programs += len(fresh)
	m.took.Compiling += time.Since(start)
	return err
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
