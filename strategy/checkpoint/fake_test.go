package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"
)

// memory is a variable in host memory.
type memory struct {
	path  string
	value *tensors.Tensor
	read  func() error
}

func (m *memory) Path() string        { return m.path }
func (m *memory) Shape() shapes.Shape { return m.value.Shape() }

func (m *memory) SaveValue(context.Context) (*tensors.Tensor, error) {
	if m.read != nil {
		if err := m.read(); err != nil {
			return nil, err
		}
	}
	return m.value, nil
}

func (m *memory) RestoreValue(_ context.Context, value *tensors.Tensor) error {
	m.value = value
	return nil
}

// numbers returns a group of three variables with value x.
func numbers(x float32) Group {
	return Group{Variables: []Variable{
		&memory{path: "/a", value: tensors.FromValue([]float32{x, x, x})},
		&memory{path: "/deep/b", value: tensors.FromScalar(x)},
		&memory{path: "/deep/c", value: tensors.FromFlatDataAndDimensions([]int64{int64(x), 2, 3, 4}, 2, 2)},
	}}
}

// requireNumbers restores a checkpoint and checks that its variables have value x.
func requireNumbers(t testing.TB, c *Checkpoint, x float32) {
	t.Helper()
	g := numbers(-1)
	require.NoError(t, c.Restore(context.Background(), g, RestoreOptions{}))
	for i, want := range numbers(x).Variables {
		require.Equal(t, want.(*memory).value.Value(), g.Variables[i].(*memory).value.Value())
	}
}

// run is a manager whose Save waits for the background work.
type run struct{ *Manager }

func (r run) Save(ctx context.Context, step int64, g Group, opts SaveOptions) error {
	return errors.Join(r.Manager.Save(ctx, step, g, opts), r.Wait(ctx))
}

// runIn returns a run that saves to a folder.
func runIn(t testing.TB, dir string, opts ManagerOptions) run {
	t.Helper()
	m, err := OpenManager(context.Background(), dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return run{m}
}

func newRun(t testing.TB, opts ManagerOptions) run {
	t.Helper()
	return runIn(t, filepath.Join(t.TempDir(), "checkpoints"), opts)
}

// oldRun returns a run in a copy of a folder of an earlier version of this package: steps 1 and 2,
// with their own numbers, each in one file.
func oldRun(t testing.TB, opts ManagerOptions) run {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/directory")))
	return runIn(t, dir, opts)
}

// latest opens the last checkpoint and closes it after the test.
func latest(t testing.TB, d run) *Checkpoint {
	t.Helper()
	c, err := d.Latest(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func names(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
