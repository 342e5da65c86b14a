package contrib_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestDatasetsDealWholeElements(t *testing.T) {
	for _, c := range []struct {
		name   string
		towers int
		ds     input.Dataset
		want   [][]any
	}{
		{"scalars", 2, input.Range(7), [][]any{{int64(0), int64(1)}, {int64(2), int64(3)}, {int64(4), int64(5)}}},
		{"batches are not cut", 2, input.Range(8).Batch(2, false), [][]any{{[]int64{0, 1}, []int64{2, 3}},
			{[]int64{4, 5}, []int64{6, 7}}}},
		{"a short batch is an element", 2, input.Range(7).Batch(2, false), [][]any{{[]int64{0, 1}, []int64{2, 3}},
			{[]int64{4, 5}, []int64{6}}}},
		{"fewer elements than towers", 3, input.Range(2), nil},
		{"one tower", 1, input.Range(2), [][]any{{int64(0)}, {int64(1)}}},
		{"nothing", 2, input.Range(0), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ctx := open(t, c.towers, 1, strategy.Options{})
			p, err := d.DistributeDataset(ctx, func() (input.Dataset, error) { return c.ds, nil })
			require.NoError(t, err)
			it, err := p.MakeOneShotIterator(ctx)
			require.NoError(t, err)
			for range 2 { // a pass, and the same again
				var got [][]any
				for {
					x, err := it.GetNext(ctx)
					if errors.Is(err, io.EOF) {
						break
					}
					require.NoError(t, err)
					require.IsType(t, (*contrib.PerDevice)(nil), x)
					got = append(got, list(t, d, ctx, x))
				}
				require.Equal(t, c.want, got)
				_, err = it.GetNext(ctx)
				require.ErrorIs(t, err, io.EOF)
				require.NoError(t, it.Initialize(ctx))
			}
			require.NoError(t, it.Close())
			require.NoError(t, it.Close())
		})
	}
}

func TestDatasetsFeedTowers(t *testing.T) {
	d, ctx := open(t, 2, 2, strategy.Options{})
	x, err := input.NewTensor([]float32{1, 2, 3, 4}, 4)
	require.NoError(t, err)
	p, err := d.DistributeDataset(ctx, func() (input.Dataset, error) {
		return input.FromSlices(input.Dict(map[string]input.Element{"x": input.Leaf(x)})), nil
	})
	require.NoError(t, err)
	it := p.MakeInitializableIterator()
	_, err = it.GetNext(ctx)
	require.Equal(t, errkind.RuntimeError, errkind.KindOf(err), "not initialized")
	require.NoError(t, it.Initialize(ctx))
	defer it.Close()
	_, err = it.GetNext(context.Background())
	require.ErrorIs(t, err, strategy.ErrContext)
	next, err := it.GetNext(ctx)
	require.NoError(t, err)
	out, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
		return tc.Mul(args[0].(map[string]any)["x"], 10)
	}, next)
	require.NoError(t, err)
	require.Equal(t, []any{float32(10), float32(20)}, list(t, d, ctx, out))
}

func TestWhatIsNoDatasetIsAValueError(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	mine := errors.New("mine")
	for name, fn := range map[string]func() (input.Dataset, error){
		"no function": nil,
		"its error":   func() (input.Dataset, error) { return input.Dataset{}, mine },
		"invalid":     func() (input.Dataset, error) { return input.Range(3).Batch(-1, false), nil },
	} {
		_, err := d.DistributeDataset(ctx, fn)
		require.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
	_, err := d.DistributeDataset(ctx, func() (input.Dataset, error) { panic(mine) })
	require.ErrorAs(t, err, new(*errkind.PanicError))
	require.ErrorIs(t, err, mine)
	_, err = d.DistributeDataset(ctx, func() (input.Dataset, error) { return input.Dataset{}, mine })
	require.ErrorIs(t, err, mine)
}

func TestDatasetsOfSeveralProcessesNameTheAlternative(t *testing.T) {
	errs := strategytest.OnProcesses(t, plugintest.System(t, 2), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 2},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			d := contrib.New(s)
			scope, err := d.Scope(ctx)
			if err != nil {
				return err
			}
			_, err = d.DistributeDataset(scope, func() (input.Dataset, error) { return input.Range(4), nil })
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.ErrorContains(t, err, "input.FromFunction")
			return nil
		})
	strategytest.NoErrors(t, errs)
}
