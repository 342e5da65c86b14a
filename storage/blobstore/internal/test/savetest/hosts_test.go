package savetest

import (
	"context"
	"fmt"
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
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// forms are the variables that are saved: a split one whose shards are uploaded in chunks, and small
// ones.
var forms = []struct {
	name  string
	shape shapes.Shape
	split bool
}{
	{"large", shapes.Make(dtypes.Float32, 1024, 768), true},
	{"small", shapes.Make(dtypes.Float32, 8, 12), true},
	{"step", shapes.Make(dtypes.Int64), false},
}

// valueAt returns the value of a variable after a step.
func valueAt(i int, step int64) *tensors.Tensor {
	if forms[i].shape.DType == dtypes.Int64 {
		return tensors.FromScalar(step)
	}
	t := tensors.FromShape(forms[i].shape)
	tensors.MustMutableFlatData(t, func(flat []float32) {
		for k := range flat {
			flat[k] = float32(step)*1000 + float32((k*7+i)%997)
		}
	})
	return t
}

// variables makes the variables on a strategy, with what they hold after a step; -1 leaves zeros.
func variables(ctx context.Context, s *strategy.TPUStrategy, step int64) (g checkpoint.Group, err error) {
	for _, f := range forms {
		opts := strategy.VariableOptions{Name: f.name}
		if p := s.NumLogicalDevices(); f.split && p > 1 {
			opts.Annotation = logical.SplitInto(1, p)
		}
		v, err := s.NewVariable(ctx, tensors.FromShape(f.shape), opts)
		if err != nil {
			return g, err
		}
		g = g.With(v)
	}
	if step >= 0 {
		err = fill(ctx, g, step)
	}
	return g, err
}

func fill(ctx context.Context, g checkpoint.Group, step int64) error {
	for i, v := range g.Variables {
		if err := v.RestoreValue(ctx, valueAt(i, step)); err != nil {
			return err
		}
	}
	return nil
}

func equal(ctx context.Context, g checkpoint.Group, step int64) error {
	for i, v := range g.Variables {
		got, err := v.SaveValue(ctx)
		if err != nil {
			return err
		}
		if !got.Equal(valueAt(i, step)) {
			return fmt.Errorf("variable %s does not hold what it held after step %d", forms[i].name, step)
		}
	}
	return nil
}

// TestHostsSaveToCloudStorageAndOthersRestore saves with four hosts, and restores with four, two and
// one. The requests are those that package blobstore's guide states.
func TestHostsSaveToCloudStorageAndOthersRestore(t *testing.T) {
	sys := plugintest.System(t, 4)
	server := fakegcs.Start(t, "bucket")
	opts := blobstore.Options{Prefix: "run", ChunkBytes: 256 << 10, RetryTimeout: 10 * time.Second}
	for i, mesh := range [][2]int{{4, 1}, {2, 2}, {1, 4}} {
		step := int64(i + 1)
		for _, hosts := range []int{4, 2, 1} {
			processes := simhost.Options{Processes: hosts}
			on := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]}
			if hosts < 4 { // and another mesh
				on = strategy.Options{Replicas: 2, LogicalDevices: 2}
			}
			server.Proxy.Methods()
			strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, processes, on, func(ctx context.Context,
				s *strategy.TPUStrategy) error {
				m, err := checkpoint.NewManager(ctx, server.Open(t, "bucket", opts), checkpoint.ManagerOptions{Strategy: s})
				if err != nil {
					return err
				}
				if hosts == 4 {
					g, err := variables(ctx, s, step)
					if err != nil {
						return err
					}
					if err := m.Save(ctx, step, g, checkpoint.SaveOptions{}); err != nil {
						return err
					}
					if err := m.Wait(ctx); err != nil {
						return err
					}
					if err := s.Barrier(ctx, "saved"); err != nil {
						return err
					}
				}
				g, err := variables(ctx, s, -1)
				if err != nil {
					return err
				}
				c, err := m.Latest(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				assert.Equal(t, step, c.Step())
				if err := c.Restore(ctx, g, checkpoint.RestoreOptions{}); err != nil {
					return err
				}
				if err := equal(ctx, g, step); err != nil {
					return err
				}
				return m.Close()
			}))
			t.Log(mesh, hosts, server.Proxy.Methods())
		}
	}
	require.NotEmpty(t, server.Names("bucket"))
}
