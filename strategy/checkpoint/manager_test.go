package checkpoint

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

func newManager(t testing.TB, dir string, opts ManagerOptions) *Manager {
	t.Helper()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	return managerOf(t, s, opts)
}

func managerOf(t testing.TB, s storage.Store, opts ManagerOptions) *Manager {
	t.Helper()
	m, err := NewManager(context.Background(), s, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func requireStep(t testing.TB, m *Manager, step int64, x float32) {
	t.Helper()
	c, err := m.Open(context.Background(), step)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Verify(context.Background()))
	require.Equal(t, step, c.Step())
	requireNumbers(t, c, x)
}

func TestAManagerSavesInTheBackground(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	m := newManager(t, dir, ManagerOptions{})
	_, err := m.Latest(ctx)
	require.ErrorIs(t, err, ErrNotFound)
	for step := int64(1); step <= 3; step++ {
		require.NoError(t, m.Save(ctx, step, numbers(float32(step)),
			SaveOptions{Metadata: map[string]string{"position": "here"}, Metrics: map[string]float64{"loss": 0.5}}))
	}
	require.NoError(t, m.Wait(ctx))
	steps, err := m.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, steps)
	for _, step := range steps {
		requireStep(t, m, step, float32(step))
	}
	c, err := m.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, map[string]string{"position": "here"}, c.Metadata())
	assert.Equal(t, map[string]float64{"loss": 0.5}, c.Metrics())
	value, err := c.Tensor(ctx, "/deep/b")
	require.NoError(t, err)
	assert.Equal(t, float32(3), value.Value())

	require.ErrorIs(t, m.Save(ctx, 3, numbers(1), SaveOptions{}), ErrStepOrder)
	require.Error(t, m.Save(ctx, -1, numbers(1), SaveOptions{}))
	require.NoError(t, m.RemoveAfter(ctx, 1))
	require.NoError(t, m.Save(ctx, 2, numbers(20), SaveOptions{}))
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	requireStep(t, m, 2, 20)
	require.ErrorIs(t, m.Save(ctx, 4, numbers(1), SaveOptions{}), ErrClosed)

	// The folder only has safetensors files and manifests.
	var rest []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if !e.IsDir() && !strings.HasSuffix(path, "host-0000.safetensors") && !strings.HasSuffix(path, "host-0000.json") {
			rest = append(rest, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	assert.Equal(t, []string{"owner.json", "step-0000000001/checkpoint.json", "step-0000000002/checkpoint.json"}, rest)
}

// TestEveryCutAndManyFlippedBytesOfShardsAreRefused damages each object of a checkpoint.
func TestEveryCutAndManyFlippedBytesOfShardsAreRefused(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	m := newManager(t, dir, ManagerOptions{})
	require.NoError(t, m.Save(ctx, 1, numbers(1), SaveOptions{}))
	require.NoError(t, m.Save(ctx, 2, numbers(2), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	files, err := filepath.Glob(filepath.Join(dir, "step-0000000002", "*", "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	check := func(what string) {
		c, passed, err := m.LatestIntact(ctx)
		require.NoError(t, err, what)
		defer c.Close()
		require.EqualValues(t, 1, c.Step(), what)
		require.Len(t, passed, 1, what)
		require.ErrorIs(t, passed[0], ErrCorrupt, what)
		if broken, err := m.Open(ctx, 2); err == nil {
			g := numbers(9)
			require.ErrorIs(t, broken.Restore(ctx, g, RestoreOptions{}), ErrCorrupt, what)
			for _, v := range g.Variables {
				if v.Path() == "/a" {
					require.Equal(t, []float32{9, 9, 9}, v.(*memory).value.Value(), what)
				}
			}
			broken.Close()
		}
	}
	for _, path := range append(files, filepath.Join(dir, "step-0000000002", "checkpoint.json")) {
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		first := 0
		if strings.HasSuffix(path, ".safetensors") {
			first = len(whole) - 3*4 - 4 - 4*8 // the manifest describes the header's layout
		}
		for i := first; i < len(whole); i += 1 + (len(whole)-first)/60 {
			broken := append([]byte(nil), whole...)
			broken[i] ^= 1 << (i % 8)
			require.NoError(t, os.WriteFile(path, broken, 0o644))
			check(path)
		}
		for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
			require.NoError(t, os.WriteFile(path, whole[:n], 0o644))
			check(path)
		}
		if !strings.HasSuffix(path, "checkpoint.json") {
			require.NoError(t, os.Remove(path))
			check(path)
		}
		require.NoError(t, os.WriteFile(path, whole, 0o644))
	}
	requireStep(t, m, 2, 2)
}

func TestRetention(t *testing.T) {
	saved := func(values ...float64) (all []savedStep) {
		for i, v := range values {
			all = append(all, savedStep{step: int64(10 * (i + 1)), value: v, hasValue: v >= 0})
		}
		return all
	}
	for _, c := range []struct {
		rule  Retention
		saved []savedStep
		want  []int64
	}{
		{Retention{}, saved(1, 2, 3), nil},
		{Retention{Last: 2}, saved(1, 2, 3, 4), []int64{10, 20}},
		{Retention{Last: 5}, saved(1, 2), nil},
		{Retention{Last: 1, Every: 20}, saved(1, 2, 3, 4, 5), []int64{10, 30}},
		{Retention{Last: 1, Best: 1, Metric: "x"}, saved(3, 1, 2, 9), []int64{10, 30}},
		{Retention{Last: 1, Best: 1, Metric: "x"}, saved(1, 1, 2, 9), []int64{10, 30}},
		{Retention{Last: 1, Best: 2, Metric: "x", Maximize: true}, saved(3, 1, 2, 0), []int64{20}},
		{Retention{Last: 1, Best: 2, Metric: "x"}, saved(-1, -1, 2, 0), []int64{10, 20}},
	} {
		require.NoError(t, c.rule.validate())
		assert.Equal(t, c.want, c.rule.stepsToRemove(c.saved), "%+v of %v", c.rule, c.saved)
	}
	for _, wrong := range []Retention{{Last: -1}, {Every: -1}, {Best: -1}, {Best: 1}, {Metric: "x"}} {
		assert.Error(t, wrong.validate(), "%+v", wrong)
	}
	ctx := context.Background()
	dir := t.TempDir()
	m := newManager(t, dir, ManagerOptions{Retention: Retention{Last: 1, Every: 4, Best: 1, Metric: "loss"}})
	for step, loss := range []float64{9, 3, 1, 5, 4, 6, 7} {
		if step == 5 { // another run continues
			require.NoError(t, m.Close())
			m = newManager(t, dir, ManagerOptions{Retention: Retention{Last: 1, Every: 4, Best: 1, Metric: "loss"},
				TakeOver: true})
		}
		require.NoError(t, m.Save(ctx, int64(step), numbers(1), SaveOptions{Metrics: map[string]float64{"loss": loss}}))
	}
	require.NoError(t, m.Wait(ctx))
	steps, err := m.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 2, 4, 6}, steps)
}

// slow is a store whose writes wait.
type slow struct {
	storage.Store
	until chan struct{}
	fail  func(name string) error
}

func (s *slow) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	if s.until != nil {
		select {
		case <-s.until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.fail != nil {
		if err := s.fail(name); err != nil {
			return err
		}
	}
	return s.Store.Put(ctx, name, opts, write)
}

// The test also cancels the context of the save after Save has returned.
func TestTheVariablesMayChangeOnceSaveReturns(t *testing.T) {
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	gate := &slow{Store: s, until: make(chan struct{})}
	m := managerOf(t, gate, ManagerOptions{})
	g := numbers(1)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, m.Save(ctx, 1, g, SaveOptions{}))
	cancel()
	require.NoError(t, g.Variables[0].(*memory).value.MutableBytes(func(data []byte) { clear(data) }))
	require.ErrorIs(t, m.Wait(ctx), context.Canceled)
	steps, err := m.Steps(context.Background())
	require.NoError(t, err)
	require.Empty(t, steps)
	close(gate.until)
	require.NoError(t, m.Wait(context.Background()))
	requireStep(t, m, 1, 1)
}

func TestAnAbortedSaveLeavesNoCheckpoint(t *testing.T) {
	ctx := context.Background()
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	m := managerOf(t, &slow{Store: s, until: make(chan struct{})}, ManagerOptions{})
	require.NoError(t, m.Save(ctx, 1, numbers(1), SaveOptions{}))
	m.Abort()
	var of *BackgroundError
	require.ErrorAs(t, m.Close(), &of)
	require.ErrorIs(t, of, context.Canceled)
	require.EqualValues(t, 1, of.Step)
	all, err := s.List(ctx, "")
	require.NoError(t, err)
	require.Empty(t, all)
}
