package pretrained_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// content returns all tensors of a directory's files, by name.
func content(t testing.TB, dir string) map[string][]float64 {
	t.Helper()
	f, err := weights.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	all := map[string][]float64{}
	var rules weights.Rules
	for _, x := range f.Tensors() {
		rules = append(rules, weights.Rule{Tensor: x.Name, To: []weights.Target{{Variable: "/" + x.Name}}})
	}
	p, err := weights.NewPlan(f.Tensors(), nil, rules, weights.PlanOptions{Create: dtypes.Float32})
	require.NoError(t, err)
	for _, v := range p.Variables() {
		x := tensors.FromShape(lazyValue{v}.shape())
		require.NoError(t, x.MutableBytes(func(data []byte) {
			require.NoError(t, p.Read(context.Background(), f, v.Path, make([]int, len(v.Shape)), v.Shape, data))
		}))
		all[v.Path] = strategytest.Numbers(t, x)
	}
	return all
}

// TestWhatIsSavedIsWhatWasLoaded saves models in each format, in one file and in several, and
// compares all numbers.
func TestWhatIsSavedIsWhatWasLoaded(t *testing.T) {
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	for _, c := range []struct {
		name     string
		loop     bool
		max      int64
		replicas int
		files    int
	}{{"llama", true, 0, 4, 1}, {"llama", false, 20_000, 1, 6}, {"gemma", true, 30_000, 1, 3}, {"gemma", false, 0, 4, 1}} {
		config, _ := read(t, "testdata/"+c.name)
		d := decoder{Config: config, loop: c.loop, compute: dtypes.Float32}
		s := strategytest.On(t, sys, d.options(c.replicas, 2, logical.ShardParameters))
		f, err := weights.Open("testdata/" + c.name)
		require.NoError(t, err)
		defer f.Close()
		store := model.NewStore()
		if c.loop == (c.name == "llama") { // the others are written from the store
			_, err := d.function(s, store).Compiled(ctx, batch([][]int32{{1, 2}, {1, 2}, {1, 2}, {1, 2}}))
			require.NoError(t, err)
		}
		_, err = pretrained.Load(ctx, s, store, f, d.rules(), pretrained.Options{})
		require.NoError(t, err)
		dir := filepath.Join(t.TempDir(), "out")
		like := config.Tensors(f.Tensors()[0].DType)
		assert.Len(t, like, len(f.Tensors()), "the tensors that such a model has")
		require.NoError(t, pretrained.Save(ctx, s, store, dir, like, d.rules(), weights.WriteOptions{MaxFileBytes: c.max}))
		assert.Equal(t, content(t, "testdata/"+c.name), content(t, dir), "%+v", c)
		names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		require.NoError(t, err)
		assert.Len(t, names, c.files, "%+v", c)
		err = pretrained.Save(ctx, s, store, dir, like, d.rules(), weights.WriteOptions{})
		assert.ErrorIs(t, err, os.ErrExist)
	}
}

// TestATrainedModelIsSavedAsItIsOnTheDevices trains a loaded model on two processes and saves it.
func TestATrainedModelIsSavedAsItIsOnTheDevices(t *testing.T) {
	sys := plugintest.System(t, 4)
	config, want := read(t, "testdata/llama")
	d := decoder{Config: config, loop: true, compute: dtypes.Float32}
	dir := filepath.Join(t.TempDir(), "out")
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2},
		d.options(2, 2, logical.ShardParameters), func(ctx context.Context, s *strategy.TPUStrategy) error {
			f, err := weights.Open("testdata/llama")
			if err != nil {
				return err
			}
			defer f.Close()
			store := model.NewStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(),
				func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
					return graph.ReduceAllMean(graph.Square(d.logits(rc, in)[0]))
				}, train.Options{}))
			if _, err := step.Compiled(ctx, batch(want.Tokens)); err != nil {
				return err
			}
			if _, err := pretrained.Load(ctx, s, store, f, d.rules(), pretrained.Options{}); err != nil {
				return err
			}
			for range 2 {
				if _, err := step.Run(ctx, want.Tokens); err != nil {
					return err
				}
			}
			if err := pretrained.Save(ctx, s, store, dir, f.Tensors(), d.rules(), weights.WriteOptions{}); err != nil {
				return err
			}
			if err := s.Barrier(ctx, "saved"); err != nil {
				return err
			}
			// After loading the files again, the values equal the values on the devices.
			saved, err := weights.Open(dir)
			if err != nil {
				return err
			}
			defer saved.Close()
			before := map[string]any{}
			for _, v := range s.Variables(store).All() {
				if v.Trainable() {
					before[v.Path()] = strategytest.OK(v.Value(ctx)).Value()
				}
			}
			if _, err := pretrained.Load(ctx, s, store, saved, d.rules(), pretrained.Options{}); err != nil {
				return err
			}
			for _, v := range s.Variables(store).All() {
				if v.Trainable() {
					assert.Equal(t, before[v.Path()], strategytest.OK(v.Value(ctx)).Value(), v.Path())
				}
			}
			return nil
		}))
	assert.NotEqual(t, content(t, "testdata/llama"), content(t, dir), "the steps changed it")
}

// TestALoadThatDoesNotFitChangesNothing loads the files of another model, with a canceled context,
// and truncated files.
func TestALoadThatDoesNotFitChangesNothing(t *testing.T) {
	ctx := context.Background()
	config, want := read(t, "testdata/llama")
	d := decoder{Config: config, loop: true, compute: dtypes.Float32}
	s := strategytest.New(t, 1, 1)
	store := model.NewStore()
	logits := d.function(s, store)
	before := run(t, s, logits, want.Tokens)
	f, err := weights.Open("testdata/llama")
	require.NoError(t, err)
	defer f.Close()
	gemma, err := weights.Open("testdata/gemma")
	require.NoError(t, err)
	defer gemma.Close()

	_, err = pretrained.Load(ctx, s, store, gemma, d.rules(), pretrained.Options{})
	var plan *weights.PlanError
	require.ErrorAs(t, err, &plan)
	deeper := d
	deeper.Layers = 2
	_, err = pretrained.Load(ctx, s, store, f, deeper.rules()[:3], pretrained.Options{})
	require.ErrorAs(t, err, &plan, "rules that lack most")
	_, err = pretrained.Load(ctx, s, store, f, d.rules(), pretrained.Options{OptionalVariables: []string{"("}})
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = pretrained.Load(cancelled, s, store, f, d.rules(), pretrained.Options{})
	require.ErrorIs(t, err, context.Canceled)
	var failed *pretrained.LoadError
	require.ErrorAs(t, err, &failed)
	assert.Empty(t, failed.Loaded)
	assert.Equal(t, before, run(t, s, logits, want.Tokens), "nothing has changed")

	// A new head keeps its values; all other variables are loaded.
	rules := append(weights.Rules{{Tensor: `lm_head\.weight`, Ignore: true}}, d.rules()...)
	for i := range rules {
		if i > 0 && rules[i].Tensor == `lm_head\.weight` {
			rules = append(rules[:i:i], rules[i+1:]...)
			break
		}
	}
	_, err = pretrained.Load(ctx, s, store, f, rules, pretrained.Options{})
	require.ErrorAs(t, err, &plan)
	require.ErrorContains(t, err, `missing: variable "/head/dense/weights"`)
	report, err := pretrained.Load(ctx, s, store, f, rules, pretrained.Options{OptionalVariables: []string{"/head/.*"}})
	require.NoError(t, err)
	assert.Len(t, report.OnDevices, 11)

	// Files are closed before the first step.
	later := model.NewStore()
	g, err := weights.Open("testdata/llama")
	require.NoError(t, err)
	_, err = pretrained.Load(ctx, s, later, g, d.rules(), pretrained.Options{})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	_, err = d.function(s, later).Run(ctx, want.Tokens)
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, "keep it open until the variables are on the devices")
}
