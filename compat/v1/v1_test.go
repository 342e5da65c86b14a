package v1

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func open(t testing.TB, replicas, p int, opts Options) *Strategy {
	t.Helper()
	return New(strategytest.New(t, replicas, p), opts)
}

func onMeshes(t *testing.T, run func(t *testing.T, s *Strategy)) {
	meshes := [][2]int{{1, 1}, {2, 1}, {2, 2}}
	strategytest.OnMeshes(t, meshes, func(t *testing.T, s *strategy.TPUStrategy) { run(t, New(s, Options{})) })
}

func values(t testing.TB, s *Strategy, nest any) (all []any) {
	t.Helper()
	list, err := s.Unwrap(nest)
	require.NoError(t, err)
	for _, c := range list {
		host, err := c.(eager.Component).Local(t.Context())
		require.NoError(t, err)
		all = append(all, host.Value())
	}
	return all
}

func TestReduceMayLeaveTheAxisOut(t *testing.T) {
	ctx := context.Background()
	onMeshes(t, func(t *testing.T, s *Strategy) {
		n := s.NumReplicasInSync()
		x, err := eager.Of(s.TPUStrategy).ValuesFromFunction(ctx, func(c eager.ValueContext) (any, error) {
			return []float32{float32(c.ReplicaIDInSyncGroup), 1}, nil
		})
		require.NoError(t, err)
		each, err := s.Reduce(ctx, strategy.Sum, x)
		require.NoError(t, err)
		require.Equal(t, []float32{float32(n*(n-1)) / 2, float32(n)}, values(t, s, each)[0])
		total, err := s.Reduce(ctx, strategy.Mean, []any{x}, 0)
		require.NoError(t, err)
		require.InDelta(t, (float64(n-1)/2+1)/2, values(t, s, total.([]any)[0])[0], 1e-6)
	})
}

func TestDatasetIteratorsStartAgain(t *testing.T) {
	ctx := context.Background()
	s := open(t, 2, 2, Options{})
	it, err := s.MakeDatasetIterator(ctx, input.Range(10).Batch(4, false))
	require.NoError(t, err)
	defer it.Close()
	for range 2 {
		var got []any
		for {
			x, err := it.GetNext(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			got = append(got, values(t, s, x))
		}
		require.Equal(t, []any{[]any{[]int64{0, 1}, []int64{2, 3}}, []any{[]int64{4, 5}, []int64{6, 7}},
			[]any{[]int64{8}, []int64{9}}}, got)
		require.NoError(t, it.Initialize(ctx))
	}
	require.NoError(t, it.Close())
	_, err = it.GetNext(ctx)
	require.ErrorIs(t, err, strategy.ErrClosed)

	_, err = s.MakeDatasetIterator(ctx, input.Range(10))
	require.ErrorIs(t, err, input.ErrNotBatched, "an unbatched dataset cannot be divided")
}

func TestInputFunctionsAreCalledOncePerWorker(t *testing.T) {
	ctx := context.Background()
	s := open(t, 2, 1, Options{})
	var contexts []input.Context
	fn := func(c input.Context) (input.Dataset, error) {
		contexts = append(contexts, c)
		return input.Range(6).Batch(2, false), nil
	}
	it, err := s.MakeInputFnIterator(ctx, fn, input.PerWorker)
	require.NoError(t, err)
	defer it.Close()
	require.Equal(t, []input.Context{{NumInputPipelines: 1, InputPipelineID: 0, NumReplicasInSync: 2}}, contexts)
	x, err := it.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{[]int64{0, 1}, []int64{2, 3}}, values(t, s, x))

	_, err = s.MakeInputFnIterator(ctx, fn, input.PerReplica)
	require.ErrorContains(t, err, "use input.PerWorker")
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	require.Len(t, contexts, 1)
	mine := errors.New("mine")
	_, err = s.MakeInputFnIterator(ctx, func(input.Context) (input.Dataset, error) { return input.Dataset{}, mine },
		input.PerWorker)
	require.ErrorIs(t, err, mine)
}

func TestExperimentalRunTakesTheNextElement(t *testing.T) {
	ctx := context.Background()
	onMeshes(t, func(t *testing.T, s *Strategy) {
		n := s.NumReplicasInSync()
		it, err := s.MakeDatasetIterator(ctx, input.Range(2*n).Batch(n, true))
		require.NoError(t, err)
		defer it.Close()
		double := func(rc *eager.ReplicaContext, args ...any) (any, error) { return rc.Add(args[0], args[0]) }
		for step := range 2 {
			out, err := s.ExperimentalRun(ctx, double, it)
			require.NoError(t, err)
			for r, got := range values(t, s, out) {
				require.Equal(t, []int64{int64(2 * (step*n + r))}, got)
			}
		}
		_, err = s.ExperimentalRun(ctx, double, it)
		require.ErrorIs(t, err, io.EOF)
		out, err := s.ExperimentalRun(ctx, func(_ *eager.ReplicaContext, args ...any) (any, error) { return len(args), nil },
			nil)
		require.NoError(t, err)
		require.Equal(t, 0, out)
		out, err = s.ExperimentalRunV2(ctx, func(_ *eager.ReplicaContext, args ...any) (any, error) { return args[1], nil },
			1, "two")
		require.NoError(t, err)
		require.Equal(t, "two", out)
	})
}

func TestStepsRunOnAnInputIterator(t *testing.T) {
	ctx := context.Background()
	s := open(t, 2, 1, Options{})
	it, err := s.MakeDatasetIterator(ctx, input.Range(12).Batch(4, true))
	require.NoError(t, err)
	defer it.Close()
	m, err := s.Extended().RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext, inputs any) error {
		if err := m.SetLastStepOutput(ctx, "batch", inputs); err != nil {
			return err
		}
		return m.SetLastStepOutput(ctx, "sum", inputs, strategy.Sum)
	}, it, 2, nil)
	require.NoError(t, err)
	require.Equal(t, []any{[]int64{4, 5}, []int64{6, 7}}, values(t, s, m.LastStepOutputs()["batch"]))
	require.Equal(t, []int64{10, 12}, values(t, s, m.LastStepOutputs()["sum"])[0])
}

func TestTheFlagsOfOldLoops(t *testing.T) {
	s := open(t, 2, 1, Options{})
	e := s.Extended()
	require.False(t, e.BetweenGraph())
	require.True(t, e.ShouldInit())
	require.True(t, e.ShouldCheckpoint())
	require.True(t, e.ShouldSaveSummary())
	require.True(t, e.RequireStaticShapes())
	require.Same(t, s.TPUStrategy, e.Strategy())
	require.Equal(t, e.WorkerDevices(t.Context()), e.ParameterDevices(t.Context()))
}

func TestConfigurationsAreUpdatedWithoutSharing(t *testing.T) {
	cluster := map[string][]string{"worker": {"a:8470", "b:8470"}}
	s := open(t, 1, 1, Options{Cluster: cluster})
	cluster["worker"][0] = "changed"
	mine := SessionConfig{Cluster: map[string][]string{"ps": {"c"}}}
	got := s.UpdateConfigProto(mine)
	want := SessionConfig{IsolateSessionState: true, Cluster: map[string][]string{"worker": {"a:8470", "b:8470"}}}
	require.Equal(t, want, got)
	require.Equal(t, SessionConfig{Cluster: map[string][]string{"ps": {"c"}}}, mine)
	got.Cluster["worker"][1] = "changed"
	s.Configure(&mine)
	require.Equal(t, want, mine)
	s.Configure(nil)

	none := open(t, 1, 1, Options{})
	require.Equal(t, SessionConfig{IsolateSessionState: true, Cluster: map[string][]string{"ps": {"c"}}},
		none.UpdateConfigProto(SessionConfig{Cluster: map[string][]string{"ps": {"c"}}}))
}

func TestNumpyDatasetsHaveTheRowsOfTheirArrays(t *testing.T) {
	ctx := context.Background()
	s := open(t, 2, 1, Options{})
	ds, err := s.ExperimentalMakeNumpyDataset(ctx, map[string]any{"x": [][]float32{{1}, {2}, {3}, {4}},
		"y": []int32{1, 2, 3, 4}})
	require.NoError(t, err)
	it, err := s.MakeDatasetIterator(ctx, ds.Batch(4, true))
	require.NoError(t, err)
	defer it.Close()
	x, err := it.GetNext(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{[]int32{1, 2}, []int32{3, 4}}, values(t, s, x.(map[string]any)["y"]))
	require.Equal(t, []any{[][]float32{{1}, {2}}, [][]float32{{3}, {4}}}, values(t, s, x.(map[string]any)["x"]))
	_, err = s.ExperimentalMakeNumpyDataset(ctx, map[string]any{"x": []float32{1}, "y": []float32{1, 2}})
	require.Error(t, err)
}

func TestInputBelongsOutsideTheReplicas(t *testing.T) {
	ctx := context.Background()
	s, other := open(t, 2, 1, Options{}), open(t, 2, 1, Options{})
	otherScope, err := eager.Of(other.TPUStrategy).Scope(ctx)
	require.NoError(t, err)
	it, err := s.MakeDatasetIterator(ctx, input.Range(8).Batch(4, true))
	require.NoError(t, err)
	defer it.Close()
	ds := input.Range(4).Batch(2, true)
	calls := map[string]func(ctx context.Context) error{
		"dataset": func(ctx context.Context) error { _, err := s.MakeDatasetIterator(ctx, ds); return err },
		"function": func(ctx context.Context) error {
			_, err := s.MakeInputFnIterator(ctx, func(input.Context) (input.Dataset, error) { return ds, nil }, input.PerWorker)
			return err
		},
		"numpy": func(ctx context.Context) error {
			_, err := s.ExperimentalMakeNumpyDataset(ctx, []float32{1})
			return err
		},
		"run": func(ctx context.Context) error { _, err := s.ExperimentalRun(ctx, nil, nil); return err },
	}
	for name, call := range calls {
		require.ErrorIs(t, call(otherScope), strategy.ErrOtherStrategy, name)
		_, err := s.ExperimentalRunV2(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return nil,
				call(rc.Context())
		})
		require.ErrorIs(t, err, strategy.ErrContext, name)
	}
	_, err = s.ExperimentalRunV2(ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
		error) {
		return it.GetNext(rc.Context())
	})
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
}
