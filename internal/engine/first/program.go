package first

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
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// name is what the programs are called.
const name = "the first values of variables"

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
func (o Options) makersOf(l *engine.Layout) makers {
	on := o.Machine
	if l.IsReplicated() {
		return makers{1, 1, []int{slices.Index(on.Local, true)}}
	}
	split := func(replica []int) bool { return slices.Min(replica) != slices.Max(replica) }
	m := makers{logicalDevices: on.GroupSize()}
	from, to := 0, on.NumDevices()
	if !l.IsSplitOverGroups() && !slices.ContainsFunc(slices.Collect(slices.Chunk(on.Of, on.GroupSize())), split) {
		from = on.Groups[0] * on.GroupSize()
		to = from + on.GroupSize()
	}
	m.replicas = (to - from) / on.GroupSize()
	for d := from; d < to; d++ {
		m.devices = append(m.devices, d)
	}
	return m
}

// source is the partition of whose device another's has a copy.
func (m makers) source(partition int) int {
	return m.devices[partition%m.logicalDevices]
}

// program is a program that makes the value of a variable.
type program struct {
	executable system.Executable
	of         *initializer
	rows       []int
}

// prepare traces the initializers of the large variables and compiles their programs.
func (m *maker) prepare(ctx context.Context, missing []*model.Variable) error {
	start := time.Now()
	var all []*initializer
	for _, v := range missing {
		init := initial.Initializer(v)
		if init == nil || v.Shape().ByteSize() < largeVariable {
			continue
		}
		placed, err := m.Place(v.Path())
		if err != nil {
			return err
		}
		if traced, err := m.trace(init, placed); err == nil {
			m.traced[v] = traced
			all = append(all, traced)
		}
	}
	m.took.Lowering += time.Since(start)
	return m.compile(ctx, all)
}

// compile compiles programs that make values, side by side, and each text once. All processes must
// have the same ones.
func (m *maker) compile(ctx context.Context, all []*initializer) error {
	start := time.Now()
	var fresh []*program
	var texts []byte
	for _, traced := range all {
		key := sha256.Sum256(traced.module.Text) // the mesh is in the text
		if m.programs[key] == nil {
			p := &program{of: traced}
			m.programs[key] = p
			fresh, texts = append(fresh, p), append(texts, key[:]...)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := m.Machine.CheckAgreement(ctx, name, fmt.Sprintf("%d programs", len(fresh)), texts); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range fresh {
		group.Go(func() (err error) {
			text, on := p.of.module, m.Machine.OptionsOn(p.of.makers.devices, p.of.module.Replicas)
			if p.executable, _, err = m.Machine.Build(ctx, name, pjrt.Program{Code: text.Text, Trusted: true}, on,
				nil); err != nil {
				return err
			}
			p.rows, err = m.Machine.LaunchPartitions(p.executable)
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
func (m *maker) onDevices(ctx context.Context, placed Variable, traced *initializer,
	state *tensors.Tensor) (next *tensors.Tensor, err error) {
	d := m.Machine
	p := m.programs[sha256.Sum256(traced.module.Text)]
	var in engine.Buffers
	if state != nil {
		in = d.Buffers()
		defer func() { err = errors.Join(err, in.Close()) }()
		if err := m.uploadState(ctx, p, state, in); err != nil {
			return nil, err
		}
	}
	args, outs := engine.NewBufferTable(len(p.rows), len(traced.module.Arguments)), engine.NewBufferTable(len(p.rows),
		len(traced.module.Results))
	for row, partition := range p.rows {
		if in != nil {
			args[row][0] = in[partition]
		}
	}
	d.Launch.Lock()
	if err = d.Check(); err == nil {
		err = p.executable.Execute(ctx, args, outs, pjrt.ExecuteOptions{})
	}
	d.Launch.Unlock()
	fresh, after := d.TableColumn(outs, p.rows, 0), d.Buffers()
	if len(traced.module.Results) > 1 {
		after = d.TableColumn(outs, p.rows, 1)
	}
	defer func() { err = errors.Join(err, after.Close()) }()
	if err == nil {
		err = fresh.Ready(ctx)
	}
	if err == nil && state != nil {
		next, err = stateOf(ctx, after)
	}
	if err != nil {
		return nil, errors.Join(err, fresh.Close())
	}
	m.took.OnDevices++
	m.made = append(m.made, arrival{placed, fresh})
	return next, m.copies.Start(ctx, int(placed.Shape.ByteSize()), fresh, traced.makers.source)
}

// uploadState copies the state of random numbers to a program's devices.
func (m *maker) uploadState(ctx context.Context, p *program, state *tensors.Tensor, in engine.Buffers) error {
	l := engine.NewReplicatedLayout(pjrt.U64, state.Shape().Dimensions, m.Machine.GroupSize())
	var scratch []byte
	var failed error
	err := state.ConstBytes(func(data []byte) {
		for _, d := range p.rows {
			if failed = m.Machine.PutShard(ctx, l, d, data, &scratch, in); failed != nil {
				return
			}
		}
	})
	return errors.Join(failed, err)
}

// stateOf reads the state of random numbers from a device.
func stateOf(ctx context.Context, buffers engine.Buffers) (*tensors.Tensor, error) {
	i := slices.IndexFunc(buffers, func(b *pjrt.Buffer) bool { return b != nil })
	if i < 0 {
		return nil, fault.New(errkind.InternalError, "state of random numbers", "",
			"no device of this process made the value")
	}
	next := tensors.FromFlatDataAndDimensions(make([]uint64, 3), 3)
	var failed error
	if err := next.MutableBytes(func(data []byte) { failed = buffers[i].ToHost(ctx, data) }); err != nil {
		return nil, err
	}
	return next, failed
}
