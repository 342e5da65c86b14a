package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// savedModel is what the checkpoint benchmarks save: on one device, or shared out over 4 replicas of
// 2 logical devices, 500 MB of variables. Two have 50,000 rows; many are small.
type savedModel struct {
	strat *strategy.TPUStrategy
	store *model.Store
	bytes int64
	dir   string
	done  func()
}

// savedShapes are the variables' shapes.
func savedShapes() (all []shapes.Shape) {
	rows := max(8, int(50_000*effort)&^7)
	width := max(8, int(512*effort)&^7)
	for range 2 {
		all = append(all, shapes.Make(dtypes.Float32, rows, width))
	}
	for range 12 {
		all = append(all, shapes.Make(dtypes.Float32, 4*width, 4*width), shapes.Make(dtypes.Float32, width, 4*width), shapes.Make(dtypes.Float32, 4*width, width))
	}
	for range 100 {
		all = append(all, shapes.Make(dtypes.Float32, width))
	}
	return all
}

// openSaved makes the model, each variable filled.
func openSaved(ctx context.Context, devices int) (m *savedModel, err error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return nil, err
	}
	m = &savedModel{done: done, strat: strat, store: model.NewStore()}
	if devices > 1 {
		shared, err := strategy.New(strat.System(), strategy.Options{Replicas: devices / 2, LogicalDevices: 2, State: strategy.ShardParameters,
			Variables: logical.Rules{logical.Match(`matrix`, logical.SplitInto(1, 2))}})
		if err != nil {
			done()
			return nil, err
		}
		m.strat, m.done = shared, func() { _ = shared.Close(); done() }
	}
	if m.dir, err = os.MkdirTemp("", "bench-checkpoint"); err != nil {
		m.done()
		return nil, err
	}
	if err := m.fill(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *savedModel) close() {
	m.done()
	_ = os.RemoveAll(m.dir)
}

// fill gives every variable random values.
func (m *savedModel) fill(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rng.Uint32()) &^ 0x40 // no large exponents
	}
	all := savedShapes()
	name := func(i int) string {
		if len(all[i].Dimensions) == 2 {
			return fmt.Sprintf("/matrix%d", i)
		}
		return fmt.Sprintf("/vector%d", i)
	}
	f := m.strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		for i, shape := range all {
			rc.Scope().Store().VariableWithShape(name(i), shape, initializer.Zero).NodeValue(rc.Graph())
		}
		return nil
	}, strategy.FunctionOptions{Name: "variables", Store: m.store})
	if _, err := f.Compiled(ctx); err != nil {
		return err
	}
	for i, shape := range all {
		t := tensors.FromShape(shape)
		if err := t.MutableBytes(func(data []byte) {
			for at := range slices.Chunk(data, len(noise)) {
				copy(at, noise)
			}
		}); err != nil {
			return err
		}
		v, ok := m.strat.Variables(m.store).Lookup(name(i))
		if !ok {
			return errors.New("no variable " + name(i))
		}
		if err := v.RestoreValue(ctx, t); err != nil {
			return err
		}
		m.bytes += int64(shape.ByteSize())
	}
	return nil
}

func (m *savedModel) group() checkpoint.Group { return checkpoint.Strategy(m.strat, m.store) }

// writeAndSync times the plain writing of as many bytes, in pieces of 4 MiB, until they are on the
// disk.
func (m *savedModel) writeAndSync() (time.Duration, error) {
	piece := make([]byte, 4<<20)
	for i := range piece {
		piece[i] = byte(i * 31 >> 3)
	}
	path := filepath.Join(m.dir, "floor")
	defer os.Remove(path)
	start := time.Now()
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	for left := m.bytes; left > 0 && err == nil; left -= int64(len(piece)) {
		_, err = f.Write(piece[:min(left, int64(len(piece)))])
	}
	err = errors.Join(err, f.Sync(), f.Close())
	return time.Since(start), err
}

// checkpointSave is a save in shards until the checkpoint is there; the floor writes as many bytes
// and syncs them.
func checkpointSave(ctx context.Context, devices int) (row, error) {
	return savesOf(ctx, devices, func(t checkpoint.SaveTimes) time.Duration { return t.Total })
}

// checkpointBlocked is the time for which a save blocks the next step: the shards are copied off the
// devices. The floor is that of checkpointSave.
func checkpointBlocked(ctx context.Context, devices int) (row, error) {
	return savesOf(ctx, devices, func(t checkpoint.SaveTimes) time.Duration { return t.Blocked })
}

func savesOf(ctx context.Context, devices int, of func(checkpoint.SaveTimes) time.Duration) (row, error) {
	m, err := openSaved(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer m.close()
	store, err := storage.Directory(filepath.Join(m.dir, "run"))
	if err != nil {
		return row{}, err
	}
	manager, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{Strategy: m.strat, Retention: checkpoint.Retention{Last: 1}})
	if err != nil {
		return row{}, err
	}
	defer manager.Close()
	var times, totals, blocked, floors []time.Duration
	debug.FreeOSMemory()
	before := memoryOf("VmRSS:")
	// From here on the peak is counted anew. Where that is not allowed the figure is that of the whole
	// process, which is more.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	for i := range max(3, rounds(7)) {
		floor, err := m.writeAndSync()
		if err != nil {
			return row{}, err
		}
		if err := manager.Save(ctx, int64(i), m.group(), checkpoint.SaveOptions{}); err != nil {
			return row{}, err
		}
		if err := manager.Wait(ctx); err != nil {
			return row{}, err
		}
		took := manager.Took()
		times, totals, blocked, floors = append(times, of(took)), append(totals, took.Total), append(blocked, took.Blocked), append(floors, floor)
	}
	us, floor := median(times), median(floors)
	return row{Us: round(us), FloorUs: round(floor), Ratio: round(us / floor), GBps: round(float64(m.bytes) / us / 1e3),
		Note: fmt.Sprintf("%.0f MB; write and fsync %.2f GB/s; blocked %.3f s, in all %.3f s; %.2f of the speed of write and fsync; peak memory %.2f of the shards",
			float64(m.bytes)/1e6, float64(m.bytes)/floor/1e3, median(blocked)/1e6, median(totals)/1e6, floor/median(totals),
			float64(memoryOf("VmHWM:")-before)*1024/float64(m.bytes))}, nil
}

// checkpointRestore is a restore of a checkpoint whose files the system has in its cache. The floor
// reads as many bytes of a file to memory of their own and sums them, by as many goroutines.
func checkpointRestore(ctx context.Context, devices int) (row, error) {
	m, err := openSaved(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer m.close()
	dir := filepath.Join(m.dir, "run")
	manager, err := checkpoint.OpenManager(ctx, dir, checkpoint.ManagerOptions{Strategy: m.strat})
	if err != nil {
		return row{}, err
	}
	defer manager.Close()
	if err := errors.Join(manager.Save(ctx, 1, m.group(), checkpoint.SaveOptions{}), manager.Wait(ctx)); err != nil {
		return row{}, err
	}
	saved, err := filepath.Glob(filepath.Join(dir, "step-*", "*", "host-0000.safetensors"))
	if err != nil || len(saved) != 1 {
		return row{}, errors.Join(err, fmt.Errorf("bench: %d tensor files in %s", len(saved), dir))
	}
	var times, floors, fast, busy, busyFloor []time.Duration // busy: of the processor
	for range max(3, rounds(7)) {
		start := used()
		floor, small, err := readAndSum(saved[0])
		if err != nil {
			return row{}, err
		}
		floors, fast, busyFloor = append(floors, floor), append(fast, small), append(busyFloor, time.Duration((used()-start)*1e9))
		c, err := manager.Open(ctx, 1)
		if err != nil {
			return row{}, err
		}
		began, cpu := time.Now(), used()
		err = errors.Join(c.Restore(ctx, m.group(), checkpoint.RestoreOptions{}), c.Close())
		times, busy = append(times, time.Since(began)), append(busy, time.Duration((used()-cpu)*1e9))
		if err != nil {
			return row{}, err
		}
	}
	us, floor := median(times), median(floors)
	return row{Us: round(us), FloorUs: round(floor), Ratio: round(us / floor), GBps: round(float64(m.bytes) / us / 1e3), CPUUs: round(median(busy)),
		Note: strings.Join([]string{fmt.Sprintf("%.0f MB in shards", float64(m.bytes)/1e6),
			fmt.Sprintf("read and CRC into memory %.3f s, through a small buffer %.3f s", floor/1e6, median(fast)/1e6),
			fmt.Sprintf("%.2f of the speed of the first", floor/us), fmt.Sprintf("the processor took %.3f s for both reads", median(busyFloor)/1e6)}, "; ")}, nil
}

// readAndSum times reads of a file with checksums by two goroutines: into memory for all of it, and
// through a buffer.
func readAndSum(path string) (whole, buffered time.Duration, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	size := info.Size()
	table := crc32.MakeTable(crc32.Castagnoli)
	read := func(into func(at, n int64) []byte) (time.Duration, error) {
		start := time.Now()
		n := int64(min(2, runtime.GOMAXPROCS(0)))
		errs := make(chan error, n)
		for g := range n {
			go func() {
				var failed error
				for at := g << 20; at < size && failed == nil; at += n << 20 {
					p := into(at, min(1<<20, size-at))
					_, failed = f.ReadAt(p, at)
					crc32.Update(0, table, p)
				}
				errs <- failed
			}()
		}
		var failed error
		for range n {
			failed = errors.Join(failed, <-errs)
		}
		return time.Since(start), failed
	}
	start := time.Now()
	all := make([]byte, size)
	allocated := time.Since(start)
	if whole, err = read(func(at, n int64) []byte { return all[at : at+n] }); err != nil {
		return 0, 0, err
	}
	runtime.KeepAlive(all)
	var buffers [2][1 << 20]byte
	buffered, err = read(func(at, n int64) []byte { return buffers[at>>20&1][:n] })
	return whole + allocated, buffered, err
}
