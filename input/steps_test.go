package input_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

func TestPartialEnd(t *testing.T) {
	from := func(ds input.Dataset) func(input.Options) (*input.DistributedDataset, error) {
		return func(o input.Options) (*input.DistributedDataset, error) {
			return input.FromFunction(func(input.Context) (input.Dataset, error) { return ds, nil }, o)
		}
	}
	got := inputcases.RunHosts(t, inputcases.Cluster{Hosts: 1, Replicas: 2}, input.Options{}, -1,
		from(input.Range(10).Batch(2, true)))
	assert.Equal(t, "[[[0 1] [2 3]] [[4 5] [6 7]]]", stepsOf(t, got), "all shapes known: the fifth batch is left out")
	got = inputcases.RunHosts(t, inputcases.Cluster{Hosts: 1, Replicas: 2}, input.Options{}, -1,
		from(input.Range(10).Batch(2, false)))
	assert.Equal(t, "[[[0 1] [2 3]] [[4 5] [6 7]] [[8 9] []]]", stepsOf(t, got))

	d, err := from(input.Range(10).Batch(2, false))(input.Options{Replicas: 2})
	require.NoError(t, err)
	steps, err := d.Open(context.Background())
	require.NoError(t, err)
	defer steps.Close()
	for _, want := range [][]bool{{true, true}, {true, true}, {true, false}} {
		step, err := steps.Next(context.Background())
		require.NoError(t, err)
		assert.Equal(t, want, step.HasData)
	}
	for range 3 {
		_, err = steps.Next(context.Background())
		assert.Equal(t, io.EOF, err, "the end stays")
	}
}

func TestStandInsKeepKnownDimensions(t *testing.T) {
	matrix, err := input.Zeros(input.Float32, 3, 4, 5)
	require.NoError(t, err)
	e := input.Dict(map[string]input.Element{"a": input.Leaf(matrix), "b": input.Leaf(input.Vector("x", "y", "z"))})
	for _, ds := range []input.Dataset{
		input.FromSlices(e).Batch(1, false),
		input.FromSlices(e).Batch(1, false).Map(func(_ context.Context, e input.Element) (input.Element, error) {
			return e,
				nil
		}, input.MapOptions{}),
	} {
		d, err := input.FromFunction(func(input.Context) (input.Dataset, error) { return ds, nil },
			input.Options{Replicas: 2})
		require.NoError(t, err)
		var last input.Step
		for step, err := range d.All(context.Background()) {
			require.NoError(t, err)
			last = step
		}
		assert.Equal(t, []bool{true, false}, last.HasData)
		assert.Equal(t, "{a: float32[0 4 5], b: string[0]}", last.Replicas[1].String())
	}
}

func TestVoteErrorsEndTheSteps(t *testing.T) {
	lost := errors.New("host lost")
	d, err := input.Distribute(input.Range(8).Batch(4, false), input.Options{Replicas: 2, Processes: 2, Policy: input.Off,
		AnyProcess: func(context.Context, bool) (bool, error) { return false, lost }})
	require.NoError(t, err)
	steps, err := d.Open(context.Background())
	require.NoError(t, err)
	defer steps.Close()
	_, err = steps.Next(context.Background())
	assert.ErrorIs(t, err, lost)
	_, err = steps.State()
	assert.ErrorIs(t, err, lost)
}

func TestStepPositionsOfOtherDatasetsAreRefused(t *testing.T) {
	open := func(o input.Options) *input.DistributedDataset {
		d, err := input.Distribute(input.Range(8).Batch(4, false), o)
		require.NoError(t, err)
		return d
	}
	steps, err := open(input.Options{Replicas: 2}).Open(context.Background())
	require.NoError(t, err)
	defer steps.Close()
	state, err := steps.State()
	require.NoError(t, err)
	_, err = open(input.Options{Replicas: 2, Rule: input.Sizes}).OpenAt(context.Background(), state)
	assert.ErrorIs(t, err, input.ErrState)
	perReplica, err := input.FromFunction(func(input.Context) (input.Dataset, error) {
		return input.Range(8).Batch(1,
			false), nil
	}, input.Options{Replicas: 4})
	require.NoError(t, err)
	_, err = perReplica.OpenAt(context.Background(), state)
	assert.ErrorIs(t, err, input.ErrState)
}

// A run that goes on with another number of replicas sees the global batches that it would have
// seen.
func TestPositionsFitAnotherNumberOfReplicas(t *testing.T) {
	ctx := context.Background()
	ds := input.Range(41).Shuffle(7, input.ShuffleOptions{Seed: 3}).Repeat(2).Batch(6, false)
	rest := func(steps *input.Steps) (rows [][]any, indices []int64) {
		for {
			step, err := steps.Next(ctx)
			if err == io.EOF {
				return rows, indices
			}
			require.NoError(t, err)
			var batch []any
			for _, e := range step.Replicas {
				batch = append(batch, inputcases.Nested(e.Leaf()).([]any)...)
			}
			rows, indices = append(rows, batch), append(indices, step.Index)
		}
	}
	for _, rule := range []input.SplitRule{input.RuleAuto, input.Chunks, input.Sizes} {
		open := func(replicas int) *input.DistributedDataset {
			d, err := input.Distribute(ds, input.Options{Replicas: replicas, Rule: rule})
			require.NoError(t, err)
			return d
		}
		for before := 1; before <= 8; before++ {
			for after := 1; after <= 8; after++ {
				for _, at := range []int{0, 1, 5, 13, 14} {
					steps, err := open(before).Open(ctx)
					require.NoError(t, err)
					for range at {
						_, err := steps.Next(ctx)
						require.NoError(t, err)
					}
					state, err := steps.State()
					require.NoError(t, err)
					data, err := state.Marshal()
					require.NoError(t, err)
					state, err = input.ParseState(data)
					require.NoError(t, err)
					resumed, err := open(after).OpenAt(ctx, state)
					require.NoError(t, err)
					want, wantIndices := rest(steps)
					got, indices := rest(resumed)
					require.Equal(t, want, got, "%v from %d to %d replicas after %d steps", rule, before, after, at)
					require.Equal(t, wantIndices, indices)
					require.NoError(t, errors.Join(steps.Close(), resumed.Close()))
				}
			}
		}
	}
}

func TestStepsRestoreExactly(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		replicas := 1 + rng.IntN(4)
		ds := input.Range(rng.IntN(30)).Shuffle(6, input.ShuffleOptions{Seed: rng.Uint64()}).Repeat(2).Batch(1+rng.IntN(7),
			rng.IntN(2) == 0)
		opts := input.Options{Replicas: replicas, Rule: []input.SplitRule{input.Chunks, input.Sizes}[rng.IntN(2)]}
		d, err := input.Distribute(ds, opts)
		require.NoError(t, err)
		var whole []string
		var states []input.State
		steps, err := d.Open(ctx)
		require.NoError(t, err)
		for {
			state, err := steps.State()
			require.NoError(t, err)
			states = append(states, state)
			step, err := steps.Next(ctx)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.Equal(t, int64(len(whole)), step.Index)
			whole = append(whole, stepText(step))
		}
		for at, state := range states {
			again, err := d.OpenAt(ctx, state)
			require.NoError(t, err)
			var got []string
			for {
				step, err := again.Next(ctx)
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
				got = append(got, stepText(step))
			}
			require.NoError(t, again.Close())
			require.Equal(t, fmt.Sprint(whole[at:]), fmt.Sprint(got), "position %d", at)
		}
	}
}

func stepText(s input.Step) string {
	text := fmt.Sprint(s.Index, s.HasData)
	for _, e := range s.Replicas {
		text += textOf(e)
	}
	return text
}
