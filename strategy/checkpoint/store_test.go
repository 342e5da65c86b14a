package checkpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

func TestAStoreNeedsNoDevices(t *testing.T) {
	ctx := context.Background()
	store := model.NewStore()
	_, err := store.CreateVariable("/layer/w", tensors.FromValue([][]float32{{1, 2}, {3, 4}}))
	require.NoError(t, err)
	moving, err := store.CreateVariable("/layer/moving_mean", tensors.FromValue([]float32{5}))
	require.NoError(t, err)
	moving.SetTrainable(false)
	d := openRun(t)
	require.NoError(t, d.Save(ctx, 1, checkpoint.StoreGroup(store), checkpoint.SaveOptions{}))

	fresh := model.NewStore()
	restoration(t, d, checkpoint.StoreGroup(fresh), checkpoint.RestoreOptions{})
	require.Equal(t, [][]float32{{1, 2}, {3, 4}}, fresh.GetVariable("/layer/w").MustValue().Value())
	require.True(t, fresh.GetVariable("/layer/w").Trainable)
	require.False(t, fresh.GetVariable("/layer/moving_mean").Trainable)

	require.NoError(t, store.GetVariable("/layer/w").SetValue(tensors.FromValue([][]float32{{0, 0}, {0, 0}})))
	restoration(t, d, checkpoint.StoreGroup(store), checkpoint.RestoreOptions{})
	require.Equal(t, [][]float32{{1, 2}, {3, 4}}, store.GetVariable("/layer/w").MustValue().Value())

	// A variable that the checkpoint does not have is an error.
	_, err = store.CreateVariable("/new", tensors.FromScalar(float32(9)))
	require.NoError(t, err)
	c, err := d.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	var mismatch *checkpoint.MismatchError
	require.ErrorAs(t, c.Restore(ctx, checkpoint.StoreGroup(store), checkpoint.RestoreOptions{}), &mismatch)
	require.Equal(t, []string{"/new"}, mismatch.Missing)
	require.NoError(t, c.Restore(ctx, checkpoint.StoreGroup(store), checkpoint.RestoreOptions{AllowMissing: true}))
}

func TestAVariableWithoutAValueIsNamed(t *testing.T) {
	store := model.NewStore()
	store.VariableWithShape("/w", shapes.Make(1, 2), nil)
	err := openRun(t).Save(context.Background(), 1, checkpoint.StoreGroup(store), checkpoint.SaveOptions{})
	require.ErrorIs(t, err, checkpoint.ErrVariable)
	require.ErrorContains(t, err, `variable "/w": `)
}

// big is a variable that exists only while it is read or written.
type big struct {
	path string
	peak *uint64
}

const bigBytes = 16 << 20

func (b *big) Path() string        { return b.path }
func (b *big) Shape() shapes.Shape { return shapes.Make(bigDType, bigBytes/4) }

var bigDType = tensors.FromScalar(float32(0)).DType()

func (b *big) sample() {
	runtime.GC() // the rest is reachable
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*b.peak = max(*b.peak, m.HeapAlloc)
}

func (b *big) SaveValue(context.Context) (*tensors.Tensor, error) {
	b.sample()
	return tensors.FromShape(b.Shape()), nil
}

func (b *big) RestoreValue(context.Context, *tensors.Tensor) error {
	b.sample()
	return nil
}

// The limit excludes the copy of the process's shards that a save makes outside of Go's heap.
func TestOneVariableIsInMemoryAtATime(t *testing.T) {
	ctx := context.Background()
	var peak uint64
	var g checkpoint.Group
	for i := range 12 {
		g = g.With(&big{path: fmt.Sprintf("/%d", i), peak: &peak})
	}
	d := openRun(t)
	(&big{peak: &peak}).sample()
	before := peak
	require.NoError(t, d.Save(ctx, 1, g, checkpoint.SaveOptions{}))
	require.Less(t, peak-before, uint64(2*bigBytes), "save")
	peak = before
	restoration(t, d, g, checkpoint.RestoreOptions{})
	require.Less(t, peak-before, uint64(3*bigBytes), "restore")
}

func TestAFileOfTheOfficialPackageIsRead(t *testing.T) {
	ctx := context.Background()
	c, err := checkpoint.OpenFile("testdata/official.safetensors", checkpoint.FileOptions{})
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, int64(-1), c.Step())
	require.NoError(t, c.Verify(ctx))
	store := model.NewStore()
	require.NoError(t, c.Restore(ctx, checkpoint.StoreGroup(store), checkpoint.RestoreOptions{AllowUnexpected: true}))
	require.Equal(t, [][]float32{{0, 1, 2}, {3, 4, 5}}, store.GetVariable("/hidden/weights").MustValue().Value())
	require.Equal(t, int64(1200), store.GetVariable("/global_step").MustValue().Value())
	require.Nil(t, store.GetVariable("/scale"), "GoMLX has no such dtype")

	// Without AllowUnexpected, the error reports the unsupported dtype.
	var mismatch *checkpoint.MismatchError
	require.ErrorAs(t, c.Restore(ctx, checkpoint.StoreGroup(model.NewStore()), checkpoint.RestoreOptions{}), &mismatch)
	require.Equal(t, []string{"/scale"}, mismatch.Unexpected)
	_, err = c.Tensor(ctx, "/scale")
	require.ErrorContains(t, err, "F8_E8M0")

	renamed, err := checkpoint.OpenFile("testdata/official.safetensors",
		checkpoint.FileOptions{Path: func(name string) string { return "/ema/" + name }})
	require.NoError(t, err)
	defer renamed.Close()
	_, err = renamed.Tensor(ctx, "/ema/hidden/weights")
	require.NoError(t, err)
	_, err = checkpoint.OpenFile("testdata/official.safetensors",
		checkpoint.FileOptions{Path: func(string) string { return "/one" }})
	require.ErrorContains(t, err, "/one")
	_, err = checkpoint.OpenFile("testdata/README.md", checkpoint.FileOptions{})
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
}

// The test needs Python with safetensors and numpy (make test-python). TPUSTRATEGY_PYTHON selects
// another interpreter.
func TestTheOfficialPackageReadsOurs(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") != "1" {
		t.Skip("TPUSTRATEGY_PYTHON_TESTS=1 runs this test")
	}
	python := os.Getenv("TPUSTRATEGY_PYTHON")
	if python == "" {
		python = "python3"
	}
	store := model.NewStore()
	for path, value := range map[string]any{"/hidden/weights": [][]float32{{1, 2}, {3, 4.5}}, "/global_step": int64(7)} {
		_, err := store.CreateVariable(path, tensors.MustFromAnyValue(value))
		require.NoError(t, err)
	}
	d := openRun(t)
	require.NoError(t, d.Save(context.Background(), 7, checkpoint.StoreGroup(store),
		checkpoint.SaveOptions{Metadata: map[string]string{"by": "test"}}))
	files, err := filepath.Glob(filepath.Join(d.Dir(), "step-0000000007", "*", "host-0000.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	c, err := d.Latest(context.Background())
	require.NoError(t, err)
	defer c.Close()
	exported := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, c.Export(context.Background(), exported, checkpoint.ExportOptions{All: true}))
	for _, file := range append(files, exported) {
		theirsOf(t, python, file)
	}
}

func theirsOf(t *testing.T, python, file string) {
	out, err := exec.Command(python, "-c", `
import json, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="np") as f:
    print(json.dumps({"metadata": f.metadata(), **{k: [str(f.get_tensor(k).dtype), f.get_tensor(k).tolist()] for k in f.keys()}}))
`, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var got map[string]any
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	require.Equal(t, map[string]any{
		"metadata":       map[string]any{"by": "test", "tpustrategy.step": "7"},
		"hidden/weights": []any{"float32", []any{[]any{1., 2.}, []any{3., 4.5}}},
		"global_step":    []any{"int64", 7.},
	}, got)
}

func ExampleManager() {
	path, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(path)
	ctx := context.Background()
	store := model.NewStore()
	if _, err := store.CreateVariable("/w", tensors.FromValue([]float32{1, 2})); err != nil {
		panic(err)
	}

	m, err := checkpoint.OpenManager(ctx, path, checkpoint.ManagerOptions{Retention: checkpoint.Retention{Last: 2}})
	if err != nil {
		panic(err)
	}
	for step := range int64(4) { // each continues in the background
		if err := m.Save(ctx, step, checkpoint.StoreGroup(store), checkpoint.SaveOptions{}); err != nil {
			panic(err)
		}
	}
	defer m.Close()
	if err := m.Wait(ctx); err != nil { // for the last
		panic(err)
	}
	steps, err := m.Steps(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("kept:", steps)

	last, err := m.Latest(ctx)
	if err != nil {
		panic(err)
	}
	defer last.Close()
	other := model.NewStore()
	if err := last.Restore(ctx, checkpoint.StoreGroup(other), checkpoint.RestoreOptions{}); err != nil {
		panic(err)
	}
	fmt.Println("step", last.Step(), other.GetVariable("/w").MustValue().Value())
	// Output:
	// kept: [2 3]
	// step 3 [1 2]
}
