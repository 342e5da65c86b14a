package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// savedValue is a variable of the tests with several hosts. It has a random value.
type savedValue struct {
	name            string
	shape           shapes.Shape
	synchronization strategy.VariableSynchronization
	aggregation     strategy.VariableAggregation
	split           bool
	value           *tensors.Tensor
}

// savedValues returns variables of every kind. The large ones have several blocks.
func savedValues(rng *rand.Rand) []savedValue {
	all := []savedValue{
		{name: "scalar", shape: shapes.Make(dtypes.Int64)},
		{name: "vector", shape: shapes.Make(dtypes.Float32, 5)},
		{name: "matrix", shape: shapes.Make(dtypes.Float32, 8, 4), split: true},
		{name: "cube", shape: shapes.Make(dtypes.BFloat16, 4, 8, 12), split: true},
		{name: "flags", shape: shapes.Make(dtypes.Bool, 16), split: true},
		{name: "empty", shape: shapes.Make(dtypes.Float32, 0, 3)},
		{name: "rows", shape: shapes.Make(dtypes.Float32, 50_000, 16), split: true},
		{name: "columns", shape: shapes.Make(dtypes.Float32, 40, 20_000), split: true},
		{name: "sum", shape: shapes.Make(dtypes.Float32, 2), synchronization: strategy.OnRead,
			aggregation: strategy.AggregateSum},
		{name: "mean", shape: shapes.Make(dtypes.Float32), synchronization: strategy.OnRead,
			aggregation: strategy.AggregateMean},
		{name: "first", shape: shapes.Make(dtypes.Int32, 3), synchronization: strategy.OnRead,
			aggregation: strategy.AggregateFirst},
	}
	for i := range all {
		all[i].value = tensors.FromShape(all[i].shape)
		_ = all[i].value.MutableBytes(func(data []byte) {
			for k := range data {
				data[k] = byte(rng.Uint32()) &^ 0x40 // no large exponents
				if all[i].shape.DType == dtypes.Bool {
					data[k] &= 1
				}
				if all[i].synchronization == strategy.OnRead { // exact for any number of replicas
					data[k] = 0
				}
			}
		})
	}
	all[8].value, all[9].value, all[10].value = tensors.FromValue([]float32{8, 16}), tensors.FromScalar(float32(3)),
		tensors.FromValue([]int32{1, 2, 3})
	return all
}

// variablesOf creates the variables on a strategy, with zeros or with their values, and with random
// sharding.
func variablesOf(ctx context.Context, s *strategy.TPUStrategy, all []savedValue, seed uint64,
	filled bool) (g checkpoint.Group, err error) {
	rng := rand.New(rand.NewPCG(seed, 9))
	for _, x := range all {
		opts := strategy.VariableOptions{Name: x.name, Synchronization: x.synchronization, Aggregation: x.aggregation}
		if p := s.NumLogicalDevices(); x.split && p > 1 && rng.IntN(5) > 0 {
			into := make([]int, x.shape.Rank())
			for d := range into {
				into[d] = 1
			}
			into[rng.IntN(len(into))] = p
			opts.Annotation = logical.SplitInto(into...)
		}
		v, err := s.NewVariable(ctx, tensors.FromShape(x.shape), opts)
		if err != nil {
			return g, err
		}
		if filled {
			if err := v.RestoreValue(ctx, x.value); err != nil {
				return g, err
			}
		}
		g = g.With(v)
	}
	return g, nil
}

// equalValues compares the variables with the expected values.
func equalValues(ctx context.Context, g checkpoint.Group, all []savedValue) error {
	for i, v := range g.Variables {
		got, err := v.SaveValue(ctx)
		if err != nil {
			return err
		}
		if !got.Equal(all[i].value) {
			return fmt.Errorf("variable %s has another value", all[i].name)
		}
	}
	return nil
}

// counting counts the bytes of tensors that are read and written.
type counting struct {
	storage.Store
	read, put *atomic.Int64
}

type countedObject struct {
	storage.Object
	read *atomic.Int64
}

func (c counting) Open(ctx context.Context, name string) (storage.Object, error) {
	o, err := c.Store.Open(ctx, name)
	if err != nil || !strings.HasSuffix(name, ".safetensors") {
		return o, err
	}
	return countedObject{o, c.read}, nil
}

func (o countedObject) ReadAt(ctx context.Context, p []byte, at int64) error {
	o.read.Add(int64(len(p)))
	return o.Object.ReadAt(ctx, p, at)
}

func (c counting) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	if strings.HasSuffix(name, ".safetensors") {
		c.put.Add(opts.Size)
	}
	return c.Store.Put(ctx, name, opts, write)
}

// Checkpoints are saved on some hosts and restored on others, with different replicas, logical
// devices and sharding, in a chain. Each host writes and reads its share.
func TestShardsFitAnyHostsAndMeshes(t *testing.T) {
	sys := plugintest.System(t, 4)
	rng := rand.New(rand.NewPCG(5, 6))
	values := savedValues(rng)
	total := int64(0)
	for _, x := range values {
		total += int64(x.shape.ByteSize())
	}
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	for step, size := range []struct{ hosts, replicas, logical int }{{2, 2, 2}, {4, 4, 1}, {1, 1, 4}, {4, 1, 4}, {2, 4, 1},
		{1, 2, 2}, {4, 2, 2}} {
		read, put := make([]atomic.Int64, size.hosts), make([]atomic.Int64, size.hosts)
		program := func(ctx context.Context, strat *strategy.TPUStrategy) error {
			store := counting{s, &read[strat.Process()], &put[strat.Process()]}
			m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{Strategy: strat, PartTimeout: time.Minute})
			if err != nil {
				return err
			}
			defer m.Close()
			g, err := variablesOf(ctx, strat, values, uint64(step), step == 0)
			if err != nil {
				return err
			}
			if step > 0 {
				c, err := m.Open(ctx, int64(step-1))
				if err != nil {
					return err
				}
				defer c.Close()
				if err := c.Restore(ctx, g, checkpoint.RestoreOptions{}); err != nil {
					return err
				}
			}
			if err := equalValues(ctx, g, values); err != nil {
				return err
			}
			if err := m.Save(ctx, int64(step), g, checkpoint.SaveOptions{}); err != nil {
				return err
			}
			return m.Wait(ctx)
		}
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: size.hosts},
			strategy.Options{Replicas: size.replicas, LogicalDevices: size.logical}, program))
		all := int64(0)
		for host := range size.hosts {
			all += put[host].Load()
			assert.Equal(t, step > 0, read[host].Load() > 0, "%+v: host %d", size, host)
			assert.Positive(t, put[host].Load(), "%+v: host %d", size, host)
		}
		assert.Less(t, all, total+int64(size.hosts)*3*4096, "%+v: each region once", size)
		assert.GreaterOrEqual(t, all, total, "%+v", size)
	}
}

// Rows that are sharded over hosts are restored from a checkpoint of other hosts.
func TestAHostReadsWhatItsDevicesNeed(t *testing.T) {
	sys := plugintest.System(t, 4)
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	value := tensors.FromFlatDataAndDimensions(strategytest.OK(tensors.CopyFlatData[float32](
		strategytest.Normals(rand.New(rand.NewPCG(1, 2)), 32_000, 128))), 32_000, 128)
	total := int64(value.Shape().ByteSize())
	for step, hosts := range []int{2, 4, 1} {
		read, put := make([]atomic.Int64, hosts), make([]atomic.Int64, hosts)
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: hosts},
			strategy.Options{Replicas: 1, LogicalDevices: 4},
			func(ctx context.Context, strat *strategy.TPUStrategy) error {
				m, err := checkpoint.NewManager(ctx, counting{s, &read[strat.Process()], &put[strat.Process()]},
					checkpoint.ManagerOptions{Strategy: strat})
				if err != nil {
					return err
				}
				defer m.Close()
				v, err := strat.NewVariable(ctx, tensors.FromShape(value.Shape()), strategy.VariableOptions{Name: "rows",
					Annotation: logical.SplitInto(4, 1)})
				if err != nil {
					return err
				}
				g := checkpoint.Group{}.With(v)
				if step == 0 {
					err = v.RestoreValue(ctx, value)
				} else {
					var c *checkpoint.Checkpoint
					if c, err = m.Latest(ctx); err == nil {
						defer c.Close()
						err = c.Restore(ctx, g, checkpoint.RestoreOptions{})
					}
				}
				if err != nil {
					return err
				}
				if err := equalValues(ctx, g, []savedValue{{value: value}}); err != nil {
					return err
				}
				return errors.Join(m.Save(ctx, int64(step), g, checkpoint.SaveOptions{}), m.Wait(ctx))
			}))
		for host := range hosts {
			assert.InDelta(t, total/int64(hosts), put[host].Load(), 4096, "%d hosts: host %d", hosts, host)
			if step > 0 {
				assert.LessOrEqual(t, read[host].Load(), total/int64(hosts)+2<<20, "%d hosts: host %d", hosts, host)
			}
		}
	}
}

// unwilling is the store of a host whose parts are lost: each Put of a part fails, or reports
// success without writing.
type unwilling struct {
	storage.Store
	lose bool
}

func (u unwilling) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	switch {
	case u.lose:
		return nil
	case strings.HasSuffix(name, ".safetensors"):
		return syscall.ENOSPC
	}
	return u.Store.Put(ctx, name, opts, write)
}

// A host's disk is full, or its parts are lost. The step has no checkpoint, the error names the
// host, and the next save removes the rest.
func TestAHostWithoutItsPartIsNamed(t *testing.T) {
	sys := plugintest.System(t, 4)
	for _, lose := range []bool{false, true} {
		s, err := storage.Directory(t.TempDir())
		require.NoError(t, err)
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 1,
			LogicalDevices: 4},
			func(ctx context.Context, strat *strategy.TPUStrategy) error {
				ill := &unwilling{s, lose}
				store := storage.Store(&switched{Store: s, at: 2, other: ill})
				if strat.Process() != 2 {
					store = s
				}
				m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{Strategy: strat,
					PartTimeout: 150 * time.Millisecond})
				if err != nil {
					return err
				}
				defer m.Close()
				v, err := strat.NewVariable(ctx, tensors.FromValue([]float32{1, 2, 3, 4}), strategy.VariableOptions{Name: "v",
					Annotation: logical.SplitInto(4)})
				if err != nil {
					return err
				}
				for step := range int64(3) {
					if sw, ok := store.(*switched); ok {
						sw.saves++
					}
					if err := m.Save(ctx, step, checkpoint.Group{}.With(v), checkpoint.SaveOptions{}); err != nil {
						return err
					}
					err := m.Wait(ctx)
					switch {
					case step != 1:
						if err != nil {
							return fmt.Errorf("step %d: %w", step, err)
						}
					case strat.Process() == 0:
						if assert.ErrorIs(t, err, checkpoint.ErrMissingParts) {
							assert.ErrorContains(t, err, "no part of process 2 after")
							assert.Equal(t, !lose, strings.Contains(err.Error(), "no space left"), "%v", err)
						}
					case strat.Process() == 2 && !lose:
						assert.ErrorIs(t, err, syscall.ENOSPC)
					case err != nil:
						return err
					}
					if err := strat.Barrier(ctx, "saved"); err != nil {
						return err
					}
				}
				steps, err := m.Steps(ctx)
				assert.Equal(t, []int64{0, 2}, steps)
				return err
			}))
		all, err := s.List(context.Background(), "step-0000000001/")
		require.NoError(t, err)
		assert.Empty(t, all, "what is left of the save that failed")
	}
}

// switched is one store, and another one during one of the saves.
type switched struct {
	storage.Store
	other     storage.Store
	saves, at int
}

func (s *switched) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	if s.saves == s.at {
		return s.other.Put(ctx, name, opts, write)
	}
	return s.Store.Put(ctx, name, opts, write)
}

// Process 0 waits for a lost part for ten minutes, or for the limit of LimitWait.
func TestAHurryEndsTheWaitForAPart(t *testing.T) {
	sys := plugintest.System(t, 2)
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 1,
		LogicalDevices: 2},
		func(ctx context.Context, strat *strategy.TPUStrategy) error {
			store := s
			if strat.Process() == 1 {
				store = &unwilling{s, true} // loses its part
			}
			m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{Strategy: strat})
			if err != nil {
				return err
			}
			v, err := strat.NewVariable(ctx, tensors.FromValue([]float32{1, 2}), strategy.VariableOptions{Name: "v",
				Annotation: logical.SplitInto(2)})
			if err != nil {
				return err
			}
			if err := m.Save(ctx, 1, checkpoint.Group{}.With(v), checkpoint.SaveOptions{}); err != nil {
				return err
			}
			start := time.Now()
			m.LimitWait(100 * time.Millisecond)
			err = m.Close()
			assert.Less(t, time.Since(start), 30*time.Second)
			if strat.Process() == 0 {
				require.ErrorIs(t, err, checkpoint.ErrMissingParts)
				assert.ErrorContains(t, err, "no part of process 1 after")
				return nil
			}
			return err
		}))
}
