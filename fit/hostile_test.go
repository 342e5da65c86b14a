package fit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// dense returns a training step with one dense layer of this number of features, on a new store. It
// compiles fast.
func dense(s *strategy.TPUStrategy, features int) *train.Step {
	return strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
		denseLoss(features), train.Options{}))
}

func denseLoss(features int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := layers.Dense(rc.Scope("model"), in[0], true, features)
		return graph.ReduceAllMean(graph.Square(graph.Sub(graph.ReduceAndKeep(h, graph.ReduceSum, -1), in[1])))
	}
}

// lines returns the lines of a table.
func lines(table string) []string { return strings.Split(strings.TrimSpace(table), "\r\n") }

// A batch whose tensors have different numbers of rows ends the run before its first step. The same
// is true for an evaluation.
func TestABatchOfDifferentRowsIsAnError(t *testing.T) {
	s := strategytest.New(t, 8, 1)
	mixed := fit.Batches(func(yield func([]any, error) bool) {
		x, _ := strategytest.Sums(16, 8)
		_, y := strategytest.Sums(8, 8)
		yield([]any{x, y}, nil)
	})
	_, err := fit.Run(t.Context(), dense(s, 2), mixed, fit.Options{Steps: 1})
	assert.ErrorContains(t, err, "argument 1 has 8 rows but argument 0 has 16")
	held := strategytest.OK(train.NewEvaluation(s, model.NewStore(), denseLoss(2), train.Options{}))
	_, err = fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(1)), fit.Options{Steps: 1}, fit.Evaluate("held", held,
		mixed, 1))
	assert.ErrorContains(t, err, "argument 1 has 8 rows but argument 0 has 16")
}

func TestWhatCannotBeRunIsRefusedBeforeAnythingIsDone(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o644))
	nothing := func(context.Context, *fit.State) error { return nil }
	some := fit.Batches(batches(3))
	const option, metric = errkind.ValueError, errkind.NotFoundError
	for name, c := range map[string]struct {
		data  fit.Data
		opts  fit.Options
		hooks []fit.Hook
		want  errkind.Kind // Unknown matches any kind
		text  string
	}{
		"negative steps":        {some, fit.Options{Steps: -1}, nil, option, "Steps"},
		"negative epochs":       {some, fit.Options{Epochs: -1}, nil, option, "Epochs"},
		"steps and epochs":      {some, fit.Options{Steps: 1, Epochs: 1}, nil, option, "both"},
		"negative interval":     {some, fit.Options{Every: -5}, nil, option, "Every"},
		"hook without interval": {some, fit.Options{}, []fit.Hook{fit.Each(0, nothing)}, option, "interval of 0"},
		"hook, negative":        {some, fit.Options{}, []fit.Hook{fit.Each(-3, nothing)}, option, "interval of -3"},
		"hook without function": {some, fit.Options{}, []fit.Hook{fit.Each(1, nil)}, option, "no function"},
		"checkpoint, negative":  {some, fit.Options{}, []fit.Hook{fit.Checkpoint(dir, -1)}, option, "interval of -1"},
		"one file, two hooks": {some, fit.Options{}, []fit.Hook{fit.CSV(dir + "/a.csv"), fit.CSV(dir + "/./a.csv")},
			option, "a.csv"},
		"one folder, two hooks": {some, fit.Options{}, []fit.Hook{fit.Checkpoint(dir, 1), fit.KeepBest(dir, fit.Loss)},
			option, dir},
		"two checkpoint hooks": {some, fit.Options{}, []fit.Hook{fit.Checkpoint(dir, 1), fit.Checkpoint(dir+"/b", 1)},
			option, "two Checkpoint"},
		"two hooks of one name": {some, fit.Options{}, []fit.Hook{fit.EarlyStop(fit.Loss, 1), fit.EarlyStop(fit.Loss, 2)},
			option, "same name"},
		"a metric nobody has": {some, fit.Options{}, []fit.Hook{fit.EarlyStop("accuracy", 1)}, metric,
			`"accuracy"; there are ["loss"]`},
		"checkpoint options twice": {some, fit.Options{}, []fit.Hook{fit.Checkpoint(dir, 1, fit.CheckpointOptions{},
			fit.CheckpointOptions{})}, option, "2 options"},
		"best options twice": {some, fit.Options{}, []fit.Hook{fit.EarlyStop(fit.Loss, 1, fit.BestOptions{},
			fit.BestOptions{})}, option, "2 options"},
		"event options twice": {some, fit.Options{}, []fit.Hook{fit.Events(dir, fit.EventsOptions{},
			fit.EventsOptions{})}, option, "2 options"},
		"feed options twice": {fit.Dataset(dataset(t, 1), feed.Options{}, feed.Options{}), fit.Options{}, nil, option,
			"2 options"},
		"resume without a place": {some, fit.Options{Resume: true}, nil, option, "no checkpoints"},
		"no data":                {fit.Data{}, fit.Options{}, nil, option, "no data"},
		"nil batches":            {fit.Batches(nil), fit.Options{}, nil, option, "no batches"},
		"nil feed":               {fit.Feed(nil), fit.Options{}, nil, option, "no feed"},
		"passes over a feed":     {fit.Feed(nil), fit.Options{Epochs: 2}, nil, option, "2 passes"},
		"data without end":       {fit.Dataset(dataset(t, 1).Repeat(-1)), fit.Options{}, nil, option, "infinite"},
		"a position of one's own": {fit.Dataset(dataset(t, 1), feed.Options{Start: input.State{Op: "x"}}), fit.Options{}, nil,
			option,
			"feed.Options.Start is set"},
		"a file for a directory": {some, fit.Options{}, []fit.Hook{fit.Checkpoint(file, 1)}, errkind.Unknown, "file"},
		"a file for the best":    {some, fit.Options{}, []fit.Hook{fit.KeepBest(file, fit.Loss)}, errkind.Unknown, "file"},
		"a file for events":      {some, fit.Options{}, []fit.Hook{fit.Events(file)}, errkind.Unknown, "file"},
		"a folder for a table":   {some, fit.Options{}, []fit.Hook{fit.CSV(dir)}, errkind.Unknown, dir},
		"a table of another run": {some, fit.Options{}, []fit.Hook{fit.CSV(file)}, errkind.Unknown, "file"},
		"checkpoints in a cloud": {some, fit.Options{}, []fit.Hook{fit.Checkpoint("gs://b/run", 1)}, errkind.Unknown,
			"gs://"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := fit.Run(context.Background(), dense(s, 1), c.data, c.opts, c.hooks...)
			require.Error(t, err)
			assert.ErrorContains(t, err, c.text)
			assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err), "%v", err)
			if c.want != errkind.Unknown {
				assert.Equal(t, c.want, errkind.KindOf(err), "%v", err)
			}
			assert.Zero(t, result.StepsRun)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, "mine", string(data))
		})
	}
	_, err := fit.Run(context.Background(), nil, some, fit.Options{})
	assert.Equal(t, option, errkind.KindOf(err))
}

// TestWhatGoesWrongOnTheWay ends runs with errors. Each run has completed the earlier steps, has
// saved a checkpoint of them, and resumes from it when the cause is removed.
func TestWhatGoesWrongOnTheWay(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	mine := errors.New("mine")
	want := map[int64]float64{}
	_, err := fit.Run(context.Background(), dense(s, 2), fit.Batches(batches(8)), fit.Options{}, losses(want))
	require.NoError(t, err)

	failing := func(at int, with func() error) iter.Seq2[[]any, error] {
		return func(yield func([]any, error) bool) {
			i := 0
			for batch := range batches(8) {
				if i == at {
					if err := with(); err != nil {
						yield(nil, err)
						return
					}
				}
				if i++; !yield(batch, nil) {
					return
				}
			}
		}
	}
	at := func(step int64, f func() error) func(context.Context, *fit.State) error {
		return func(_ context.Context, s *fit.State) error {
			if s.Step() == step {
				return f()
			}
			return nil
		}
	}
	good := fit.Batches(batches(8))
	var panicked *errkind.PanicError
	var argument *strategy.ArgumentError
	var diverged *train.NonFiniteError
	for name, c := range map[string]struct {
		data  fit.Data
		hook  fit.Hook
		steps int64
		is    error
		as    any
		says  string
		taken int64
	}{
		"a hook fails": {good, fit.Each(5, at(5, func() error { return mine })), 0, mine, nil,
			"fit: hook each after step 5: mine", 5},
		"a hook panics": {good, fit.Each(1, at(4, func() error { panic(mine) })), 0, mine, &panicked,
			"fit: hook each after step 4", 4},
		"a hook's record panics": {good, fit.Hook{Name: "r", Every: 3,
			Record: at(3, func() error { panic("at the disco") })}, 0, nil, &panicked, "fit: hook r after step 3", 3},
		"a hook's record fails": {good, fit.Hook{Name: "r", Every: 3, Record: at(3, func() error { return mine })}, 0, mine,
			nil, "fit: hook r after step 3: mine", 3},
		"a hook's end fails": {good, fit.Hook{Name: "e", End: func(context.Context, *fit.State,
			error) error {
			return mine
		}}, 0, mine, nil, "fit: hook e after step 8: mine", 8},
		"a hook's end panics": {good, fit.Hook{Name: "e", End: func(context.Context, *fit.State,
			error) error {
			panic(mine)
		}}, 0, mine, &panicked, "fit: hook e after step 8", 8},
		"the data fails": {fit.Batches(failing(6, func() error { return mine })), fit.Hook{}, 0, mine, nil,
			"fit: step 7: reading the batch: mine", 6},
		"the data panics": {fit.Batches(failing(6, func() error { panic(mine) })), fit.Hook{}, 0, mine, &panicked,
			"fit: step 7: reading the batch", 6},
		"the data is too short": {good, fit.Hook{}, 20, nil, nil, "fit: the data ended: 8 of 20 steps were run", 8},
		"a batch of other rank": {fit.Batches(wrongAt(5, []any{float32(1), float32(2)})), fit.Hook{}, 0, nil, nil,
			"fit: step 6: taking the step", 5},
		"a batch of other number": {fit.Batches(wrongAt(5, []any{})), fit.Hook{}, 0, nil, nil, "fit: step 6: taking the step",
			5},
		"a batch of no tensors": {fit.Batches(wrongAt(5, []any{"x", make(chan int)})), fit.Hook{}, 0, nil, &argument,
			"fit: step 6: taking the step", 5},
		"a metric diverges": {good, fit.Hook{Name: "nan", Every: 1, Measure: func(_ context.Context, s *fit.State) error {
			s.SetMetric("held/loss", map[bool]float64{true: 1 / zero}[s.Step() == 4])
			return nil
		}}, 0, nil, &diverged, "held/loss (+Inf) is not finite after step 4; go on", 4},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			table := filepath.Join(dir, "losses.csv")
			hooks := []fit.Hook{fit.CSV(table), c.hook, fit.TerminateOnNaN("held/loss"),
				fit.Checkpoint(filepath.Join(dir, "run"), 2)}
			if c.as != any(&diverged) {
				hooks[2] = fit.TerminateOnNaN()
			}
			result, err := fit.Run(context.Background(), dense(s, 2), c.data, fit.Options{Steps: c.steps, Every: 1}, hooks...)
			require.Error(t, err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
			}
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.taken, result.StepsRun, "%v", err)
			point, err := fit.LatestSnapshot(t.Context(), filepath.Join(dir, "run"))
			require.NoError(t, err)
			if c.as == any(&diverged) {
				assert.Less(t, point.Step, c.taken, "the state that diverged is not saved")
			} else {
				assert.Equal(t, c.taken, point.Step)
			}

			got := map[int64]float64{}
			_, err = fit.Run(context.Background(), dense(s, 2), good, fit.Options{Every: 1, Resume: true},
				fit.CSV(table), losses(got), fit.Checkpoint(filepath.Join(dir, "run"), 2))
			require.NoError(t, err)
			for step, loss := range got {
				assert.Equal(t, want[step], loss, step)
			}
			rows, err := os.ReadFile(table)
			require.NoError(t, err)
			all := lines(string(rows))
			require.Len(t, all, 9, "%s", rows)
			for i, line := range all[1:] {
				assert.True(t, strings.HasPrefix(line, fmt.Sprintf("%d,1,%v", i+1, want[int64(i+1)])), "%s", line)
			}
		})
	}
}

var zero = 0.0

// wrongAt replaces one batch by a wrong one.
func wrongAt(at int, wrong []any) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		i := 0
		for batch := range batches(8) {
			if i == at {
				batch = wrong
			}
			if i++; !yield(batch, nil) {
				return
			}
		}
	}
}

func TestCheckpointsOfOthersAreRefused(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	begun := fit.Options{Steps: 3, Settings: map[string]string{"batch": "32"}}
	_, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), begun, fit.Checkpoint(dir, 0), fit.EarlyStop(fit.Loss,
		9))
	require.NoError(t, err)
	before := names(t, dir)

	refused := func(step *train.Step, data fit.Data, o fit.Options, hooks ...fit.Hook) error {
		t.Helper()
		o.Steps = 6
		if o.Settings == nil {
			o.Settings = begun.Settings
		}
		result, err := fit.Run(ctx, step, data, o, append(hooks, fit.Checkpoint(dir, 1))...)
		require.ErrorIs(t, err, fit.ErrResume)
		assert.ErrorContains(t, err, "fit: resume from step 3 in "+dir+": ")
		assert.Zero(t, result.StepsRun)
		assert.Equal(t, before, names(t, dir), "nothing is lost")
		return err
	}
	good := fit.Batches(batches(-1))
	assert.ErrorContains(t, refused(dense(s, 2), good, fit.Options{}), "Resume is not set")
	err = refused(dense(s, 2), good, fit.Options{Resume: true, Settings: map[string]string{"batch": "64"}})
	assert.ErrorContains(t, err, `setting "batch" was 32 when it was saved and is 64 here`)
	other := dense(s, 2)
	other.Store().SetParam(model.ParamInitialSeed, int64(7))
	assert.ErrorContains(t, refused(other, good, fit.Options{Resume: true}), `"`+model.ParamInitialSeed+`" was 42`)

	// Another shape, another optimizer, another model.
	err = refused(dense(s, 3), good, fit.Options{Resume: true})
	require.ErrorIs(t, err, checkpoint.ErrVariable)
	assert.ErrorContains(t, err, `checkpoint: variable "/model/`)
	assert.ErrorContains(t, err, "3")
	momentless := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.StochasticGradientDescent().Done(),
		strategytest.Annotated(1), train.Options{}))
	var mismatch *checkpoint.MismatchError
	require.ErrorAs(t, refused(momentless, good, fit.Options{Resume: true}), &mismatch)
	assert.NotEmpty(t, mismatch.Unexpected)

	// The data has fewer batches than the run has used.
	_, err = fit.Run(ctx, dense(s, 2), fit.Batches(batches(2)), fit.Options{Steps: 6, Resume: true,
		Settings: begun.Settings}, fit.Checkpoint(dir, 1))
	require.ErrorIs(t, err, input.ErrState)

	// All checkpoints are damaged, or do not belong to a run of this package.
	damaged := shardsOf(t, filepath.Join(dir, before[len(before)-1]))
	data, err := os.ReadFile(damaged)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(damaged, data, 0o644))
	err = refused(dense(s, 2), good, fit.Options{Resume: true})
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
}

// names returns the names of the checkpoints in a directory.
func names(t *testing.T, dir string) (all []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}

// shardsOf returns the tensor file of a step that one process saved.
func shardsOf(t *testing.T, step string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(step, "*", "host-0000.safetensors"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}
