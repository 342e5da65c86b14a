package checkpoint

import (
	"context"
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

// numbers is a group of three variables that hold x.
func numbers(x float32) Group {
	return Group{Variables: []Variable{
		&memory{path: "/a", value: tensors.FromValue([]float32{x, x, x})},
		&memory{path: "/deep/b", value: tensors.FromScalar(x)},
		&memory{path: "/deep/c", value: tensors.FromFlatDataAndDimensions([]int64{int64(x), 2, 3, 4}, 2, 2)},
	}}
}

// requireNumbers restores a checkpoint and checks that its variables hold x.
func requireNumbers(t testing.TB, c *Checkpoint, x float32) {
	t.Helper()
	g := numbers(-1)
	require.NoError(t, c.Restore(context.Background(), g, RestoreOptions{}))
	for i, want := range numbers(x).Variables {
		require.Equal(t, want.(*memory).value.Value(), g.Variables[i].(*memory).value.Value())
	}
}

func newDirectory(t testing.TB, opts Options) *Directory {
	t.Helper()
	d, err := OpenDirectory(filepath.Join(t.TempDir(), "checkpoints"), opts)
	require.NoError(t, err)
	return d
}

// latest opens the last checkpoint and closes it after the test.
func latest(t testing.TB, d *Directory) *Checkpoint {
	t.Helper()
	c, err := d.Latest()
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
