package strategy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// makers says where the value of a variable is made: by one device, where each device holds it
// whole, or by the logical devices of one replica, each its part. The process's other devices have
// copies. So it is made once in a process, however many devices that has. A process needs no other
// for it, and who makes it is not the same device in each.
//
// A split value is made by the devices of all replicas where some replica's are spread over
// processes: what a process lacks, no other can copy to it.
//
// That holds for every platform: libtpu compiles programs for some of a slice's devices, and the
// plugins copy between the devices of a process without a way through the host.
type makers struct {
	// replicas and logicalDevices are the mesh that the program is written for.
	replicas, logicalDevices int
	// devices are the partitions that it runs on, in the mesh's order.
	devices []int
}

// makersOf returns where a value is made that is whole on each device, or split. The mesh is the
// same on all processes.
func (s *TPUStrategy) makersOf(l *layout) makers {
	if l.whole {
		return makers{1, 1, []int{slices.Index(s.processes.local, true)}}
	}
	split := func(replica []int) bool { return slices.Min(replica) != slices.Max(replica) }
	m := makers{replicas: s.replicas, logicalDevices: s.logicalDevices}
	first, last := 0, len(s.devices)
	if !l.over.Is() && !slices.ContainsFunc(slices.Collect(slices.Chunk(s.processes.of, s.logicalDevices)), split) {
		m.replicas = 1
		first = s.processes.replicas[0] * s.logicalDevices
		last = first + s.logicalDevices
	}
	for d := first; d < last; d++ {
		m.devices = append(m.devices, d)
	}
	return m
}

// source is the partition of whose device another's has a copy.
func (m makers) source(partition int) int {
	return m.devices[partition%m.logicalDevices]
}

// valueProgram is a program that makes the value of a variable.
type valueProgram struct {
	executable system.Executable
	traced     *tracedInitializer
	rows       []int
}

// prepare traces the initializers of the large variables and compiles their programs.
func (m *maker) prepare(ctx context.Context, missing []*model.Variable) error {
	start := time.Now()
	var all []*tracedInitializer
	for _, v := range missing {
		init := initial.Of(v)
		if init == nil || v.Shape().ByteSize() < largeVariable {
			continue
		}
		placed, err := m.vs.variable(v.Path())
		if err != nil {
			return err
		}
		if traced, err := m.vs.strategy.traceInitializer(m.vs.store, init, placed); err == nil {
			m.traced[v] = traced
			all = append(all, traced)
		}
	}
	m.took.Lowering += time.Since(start)
	return m.compile(ctx, all)
}

// compile compiles programs that make values, side by side, and each text once. All processes must
// have the same ones.
func (m *maker) compile(ctx context.Context, all []*tracedInitializer) error {
	start, s := time.Now(), m.vs.strategy
	var fresh []*valueProgram
	var texts []byte
	for _, traced := range all {
		key := sha256.Sum256(traced.module.Text) // the mesh is in the text
		if m.programs[key] == nil {
			p := &valueProgram{traced: traced}
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
			of := p.traced.module
			if p.executable, err = s.buildOnce(ctx, "the first values of variables", of, s.compileOptionsOn(p.traced.makers.devices, of.Replicas)); err != nil {
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

// onDevices runs the program that makes a variable's value, starts the copies of it, and returns
// the state of random numbers after it, if it draws some. The variable has the value when the
// copies are finished.
func (m *maker) onDevices(ctx context.Context, placed *Variable, traced *tracedInitializer, state *tensors.Tensor) (next *tensors.Tensor, err error) {
	s := m.vs.strategy
	p := m.programs[sha256.Sum256(traced.module.Text)]
	var in []*pjrt.Buffer
	if state != nil {
		in = make([]*pjrt.Buffer, len(s.devices))
		defer func() { err = errors.Join(err, closeAll(in)) }()
		if err := m.uploadState(ctx, p, state, in); err != nil {
			return nil, err
		}
	}
	args, outs := make([][]*pjrt.Buffer, len(p.rows)), make([][]*pjrt.Buffer, len(p.rows))
	for row, d := range p.rows {
		if in != nil {
			args[row] = []*pjrt.Buffer{in[d]}
		}
		outs[row] = make([]*pjrt.Buffer, len(traced.module.Results))
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
	return next, m.copies.start(ctx, placed, fresh, traced.makers)
}

// uploadState copies the state of random numbers to a program's devices.
func (m *maker) uploadState(ctx context.Context, p *valueProgram, state *tensors.Tensor, in []*pjrt.Buffer) error {
	s := m.vs.strategy
	l, err := s.layout(state.DType(), state.Shape().Dimensions, p.traced.module.Arguments[0].Annotation, false)
	if err != nil {
		return err
	}
	var scratch []byte
	var failed error
	err = state.ConstBytes(func(data []byte) {
		for _, d := range p.rows {
			if failed = s.uploadPart(ctx, &l, d/s.logicalDevices, d%s.logicalDevices, data, &scratch, in); failed != nil {
				return
			}
		}
	})
	return errors.Join(failed, err)
}

// stateOf reads the state of random numbers from a device.
func stateOf(ctx context.Context, buffers []*pjrt.Buffer) (*tensors.Tensor, error) {
	i := slices.IndexFunc(buffers, func(b *pjrt.Buffer) bool { return b != nil })
	if i < 0 {
		return nil, fault.New(errkind.InternalError, "state of random numbers", "", "no device of this process made the value")
	}
	next := tensors.FromFlatDataAndDimensions(make([]uint64, 3), 3)
	var failed error
	if err := next.MutableBytes(func(data []byte) { failed = buffers[i].ToHost(ctx, data) }); err != nil {
		return nil, err
	}
	return next, failed
}
