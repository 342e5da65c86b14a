package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// savedModel is the model of the checkpoint benchmarks: 507 MB of variables on one device, or
// sharded over 4 replicas of 2 logical devices. Two variables have 50,000 rows, and many are small.
type savedModel struct {
	group   checkpoint.Group
	manager *checkpoint.Manager
	bytes   int64
	dir     string
}

func (r *rig) savedModel(ctx context.Context) (*savedModel, error) {
	rows, width := sized(50_000, 8)&^7, sized(512, 8)&^7
	all := append(float32s("rows_matrix", 2, rows, width), float32s("square_matrix", 12, 4*width, 4*width)...)
	all = append(all, float32s("up_matrix", 12, width, 4*width)...)
	all = append(all, float32s("down_matrix", 12, 4*width, width)...)
	all = append(all, float32s("vector", 100, width)...)
	opts := r.parts(logical.Rules{logical.Match(`matrix`, logical.SplitInto(1, 2))})
	if r.devices > 1 {
		opts.Variables = append(opts.Variables, logical.MatchState("", logical.ShardParameters))
	}
	strat, err := r.strategy(ctx, opts)
	if err != nil {
		return nil, err
	}
	store := model.NewStore()
	if _, err := declared(strat, store, all, initializer.RandomUniformFn(store.RootScope(), 0, 1)).Run(ctx); err != nil {
		return nil, err
	}
	m := &savedModel{group: checkpoint.StrategyGroup(strat, store)}
	for _, v := range all {
		m.bytes += int64(v.shape.ByteSize())
	}
	if m.dir, err = r.folder(); err != nil {
		return nil, err
	}
	m.manager, err = checkpoint.OpenManager(ctx, filepath.Join(m.dir, "run"), checkpoint.ManagerOptions{Strategy: strat,
		Retention: checkpoint.Retention{Last: 1}})
	if err == nil {
		r.later(func() { _ = m.manager.Close() })
	}
	return m, err
}

// save saves a checkpoint and waits until it is complete.
func (m *savedModel) save(ctx context.Context, step int64) error {
	if err := m.manager.Save(ctx, step, m.group, checkpoint.SaveOptions{}); err != nil {
		return err
	}
	return m.manager.Wait(ctx)
}

// checkpointSave measures a complete save of a sharded checkpoint. The baseline writes and syncs
// the same number of bytes. The note reports how long a save blocks the next step while the shards
// are copied from the devices.
func checkpointSave(ctx context.Context, r *rig) (row, error) {
	m, err := r.savedModel(ctx)
	if err != nil {
		return row{}, err
	}
	debug.FreeOSMemory()
	before := memoryOf("VmRSS:")
	// Reset the peak memory. Without permission, the peak includes everything before this point.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	var blocked []float64
	step := int64(0)
	result, err := repeat{turns: 7, limit: time.Minute, ops: 1}.time(func(int) (time.Duration, error) {
		step++
		err := m.save(ctx, step)
		took := m.manager.LastSaveDurations()
		blocked = append(blocked, us(took.Blocked))
		return took.Total, err
	}, timed(m.write, nil))
	result.GBps = round(float64(m.bytes) / result.Us / 1e3)
	result.Note += fmt.Sprintf("; %.0f MB; blocked %.3f s; peak memory %.2f of the shards", float64(m.bytes)/1e6,
		median(blocked)/1e6,
		float64(memoryOf("VmHWM:")-before)*1024/float64(m.bytes))
	return result, err
}

// write writes and syncs as many bytes as the model has, in blocks of 4 MiB.
func (m *savedModel) write() error {
	piece := random(4 << 20)
	path := filepath.Join(m.dir, "floor")
	defer os.Remove(path)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for left := m.bytes; left > 0 && err == nil; left -= int64(len(piece)) {
		_, err = f.Write(piece[:min(left, int64(len(piece)))])
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// checkpointRestore measures a restore from files in the page cache. The baseline reads and sums
// the same number of bytes with the same number of goroutines.
func checkpointRestore(ctx context.Context, r *rig) (row, error) {
	m, err := r.savedModel(ctx)
	if err != nil {
		return row{}, err
	}
	if err := m.save(ctx, 1); err != nil {
		return row{}, err
	}
	saved, err := filepath.Glob(filepath.Join(m.dir, "run", "step-*", "*", "host-0000.safetensors"))
	if err != nil || len(saved) != 1 {
		return row{}, errors.Join(err, fmt.Errorf("bench: %d tensor files in %s", len(saved), m.dir))
	}
	result, err := repeat{turns: 7, limit: time.Minute, ops: 1}.time(timed(func() error {
		c, err := m.manager.Open(ctx, 1)
		if err != nil {
			return err
		}
		return errors.Join(c.Restore(ctx, m.group, checkpoint.RestoreOptions{}), c.Close())
	}, nil), timed(func() error { return readAndSum(saved[0]) }, nil))
	result.GBps = round(float64(m.bytes) / result.Us / 1e3)
	result.Note += fmt.Sprintf("; %.0f MB in shards", float64(m.bytes)/1e6)
	return result, err
}

// readAndSum reads a file with two goroutines and computes checksums.
func readAndSum(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	all := make([]byte, info.Size())
	const piece = 1 << 20
	table := crc32.MakeTable(crc32.Castagnoli)
	var group errgroup.Group
	for g := range 2 {
		group.Go(func() error {
			for at := g * piece; at < len(all); at += 2 * piece {
				p := all[at:min(at+piece, len(all))]
				if _, err := f.ReadAt(p, int64(at)); err != nil {
					return err
				}
				crc32.Update(0, table, p)
			}
			return nil
		})
	}
	err = group.Wait()
	runtime.KeepAlive(all)
	return err
}
