package initialization

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
	"github.com/tpustrategy/tpustrategy/internal/modelfields"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// programName is the name of all programs in errors and logs.
const programName = "the first values of variables"

// computeDevices are the devices that compute the value of a variable. Each process computes the
// value once and copies it to its other devices, without communication between the processes. A
// replicated value is computed by one device. Each shard of a sharded value is computed by a
// logical device of one replica. However, if the devices of a replica belong to several processes,
// no process has all shards, and the devices of all replicas compute the value.
type computeDevices struct {
	// replicas and logicalDevices are the size of the program's mesh, which is equal on all
	// processes.
	replicas, logicalDevices int
	// devices are the partitions that run the program, in the order of the mesh.
	devices []int
}

func (o Options) selectDevices(l *engine.Layout) computeDevices {
	on := o.Runtime
	if l.IsReplicated() {
		return computeDevices{1, 1, []int{slices.Index(on.Local, true)}}
	}
	split := func(replica []int) bool { return slices.Min(replica) != slices.Max(replica) }
	m := computeDevices{logicalDevices: on.GroupSize()}
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

// source returns the partition from which the computed value is copied to the given partition.
func (m computeDevices) source(partition int) int {
	return m.devices[partition%m.logicalDevices]
}

// program is a compiled initializer.
type program struct {
	initializer *initializer
	executable  system.Executable
	partitions  []int // the partitions of this process that run it, in launch order
}

// prepare traces the initializers of the large variables and compiles their programs.
func (r *runner) prepare(ctx context.Context, missing []*model.Variable) error {
	start := time.Now()
	var all []*initializer
	for _, v := range missing {
		init := modelfields.Initializer(v)
		if init == nil || v.Shape().ByteSize() < largeVariable {
			continue
		}
		placed, err := r.Place(v.Path())
		if err != nil {
			return err
		}
		if traced, err := r.trace(init, placed); err == nil {
			r.traced[v] = traced
			all = append(all, traced)
		}
	}
	r.stats.Lowering += time.Since(start)
	return r.compile(ctx, all)
}

// compile compiles the initializers concurrently. Initializers with the same text share one
// program. All processes must pass the same initializers.
func (r *runner) compile(ctx context.Context, all []*initializer) error {
	start := time.Now()
	var fresh []*program
	var texts []byte
	for _, traced := range all {
		key := sha256.Sum256(traced.module.Text) // the mesh is in the text
		if r.programs[key] == nil {
			p := &program{initializer: traced}
			r.programs[key] = p
			fresh, texts = append(fresh, p), append(texts, key[:]...)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := r.Runtime.CheckAgreement(ctx, programName, fmt.Sprintf("%d programs", len(fresh)), texts); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range fresh {
		group.Go(func() (err error) {
			module := p.initializer.module
			if p.executable, _, err = r.Runtime.Build(ctx, programName, pjrt.Program{Code: module.Text, Trusted: true},
				r.Runtime.OptionsOn(p.initializer.devices.devices, module.Replicas), nil); err != nil {
				return err
			}
			p.partitions, err = r.Runtime.LaunchPartitions(p.executable)
			return err
		})
	}
	err := group.Wait()
	r.stats.Programs += len(fresh)
	r.stats.Compiling += time.Since(start)
	return err
}

// computeOnDevices runs the program that computes a variable's value, and starts to copy the value
// to the other devices. state is the random number state before the initializer, and next is the
// state after the initializer. Both are nil if the initializer is not random.
func (r *runner) computeOnDevices(ctx context.Context, placed Variable, traced *initializer,
	state *tensors.Tensor) (next *tensors.Tensor, err error) {
	d := r.Runtime
	p := r.programs[sha256.Sum256(traced.module.Text)]
	var in engine.Buffers
	if state != nil {
		in = d.Buffers()
		defer func() { err = errors.Join(err, in.Close()) }()
		if err := r.uploadState(ctx, p, state, in); err != nil {
			return nil, err
		}
	}
	rows := len(p.partitions)
	args := engine.NewBufferTable(rows, len(traced.module.Arguments))
	outs := engine.NewBufferTable(rows, len(traced.module.Results))
	for row, partition := range p.partitions {
		if in != nil {
			args[row][0] = in[partition]
		}
	}
	d.Launch.Lock()
	if err = d.Check(); err == nil {
		err = p.executable.Execute(ctx, args, outs, pjrt.ExecuteOptions{})
	}
	d.Launch.Unlock()
	fresh, after := d.TableColumn(outs, p.partitions, 0), d.Buffers()
	if len(traced.module.Results) > 1 {
		after = d.TableColumn(outs, p.partitions, 1)
	}
	defer func() { err = errors.Join(err, after.Close()) }()
	if err == nil {
		err = fresh.Ready(ctx)
	}
	if err == nil && state != nil {
		next, err = downloadState(ctx, after)
	}
	if err != nil {
		return nil, errors.Join(err, fresh.Close())
	}
	r.stats.OnDevices++
	r.computed = append(r.computed, computedValue{placed, fresh})
	return next, r.broadcaster.Start(ctx, int(placed.Shape.ByteSize()), fresh, traced.devices.source)
}

func (r *runner) uploadState(ctx context.Context, p *program, state *tensors.Tensor, in engine.Buffers) error {
	l := engine.NewReplicatedLayout(pjrt.U64, state.Shape().Dimensions, r.Runtime.GroupSize())
	var scratch []byte
	var failed error
	err := state.ConstBytes(func(data []byte) {
		for _, d := range p.partitions {
			if failed = r.Runtime.PutShard(ctx, l, d, data, &scratch, in); failed != nil {
				return
			}
		}
	})
	return errors.Join(failed, err)
}

// downloadState copies the random number state from a device of this process to the host.
func downloadState(ctx context.Context, buffers engine.Buffers) (*tensors.Tensor, error) {
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
