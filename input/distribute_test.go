package input_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

// stepsOf writes the steps of an outcome, all hosts together, as lists of lists.
func stepsOf(t *testing.T, o inputcases.Outcome) string {
	t.Helper()
	require.NoError(t, o.Err)
	var out [][]any
	for _, step := range o.Steps {
		var row []any
		for _, e := range step {
			row = append(row, inputcases.Nested(e.Leaf()))
		}
		out = append(out, row)
	}
	return fmt.Sprint(out)
}

func TestUnbatchedDataIsNeverSplit(t *testing.T) {
	column, err := input.NewTensor([]float32{1, 2, 3, 4}, 2, 2)
	require.NoError(t, err)
	identity := func(_ context.Context, e input.Element) (input.Element, error) { return e, nil }
	for name, ds := range map[string]input.Dataset{
		"scalars":         input.Range(8),
		"vectors":         input.FromSlices(input.Leaf(column)),
		"static elements": input.FromElements(input.Leaf(column), input.Leaf(column)),
		"unbatched":       input.Range(8).Batch(2, true).Unbatch(),
		"unknown scalars": input.Range(8).Map(identity, input.MapOptions{}),
		"unknown vectors": input.FromSlices(input.Leaf(column)).Map(identity, input.MapOptions{}),
		"one of two":      input.FromElements(input.Tuple(input.Leaf(column), input.Leaf(input.Scalar[int32](1)))),
		"scalar of batch": input.Range(8).Batch(4, false).Map(func(context.Context, input.Element) (input.Element, error) {
			return input.Leaf(input.Scalar[int32](0)), nil
		}, input.MapOptions{}),
		"mixed with batch": input.Range(8).Batch(2, true).Concatenate(input.FromElements(input.Leaf(input.Vector[int64](1,
			2)))),
	} {
		for _, rule := range []input.SplitRule{input.RuleAuto, input.Chunks} {
			got := inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 1, Replicas: 2}, input.Options{Rule: rule}, -1)
			assert.ErrorIs(t, got.Err, input.ErrNotBatched, name)
		}
		assert.NoError(t, inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 1, Replicas: 1}, input.Options{}, -1).Err,
			"%s: one replica takes elements as they are", name)
	}
}

func TestComponentsOfDifferentBatchSizes(t *testing.T) {
	e := input.Tuple(input.Leaf(input.Vector[int64](1, 2, 3, 4)), input.Leaf(input.Vector[int64](7, 8)))
	ds := input.FromElements(e).Concatenate(input.FromElements(input.Tuple(input.Leaf(input.Vector[int64](5)),
		input.Leaf(input.Vector[int64](9, 9, 9)))))
	got := inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 1, Replicas: 2}, input.Options{}, -1)
	require.NoError(t, got.Err)
	assert.JSONEq(t, `[{"PerReplica":[[1,2],[3,4]]},{"PerReplica":[[7],[8]]}]`, inputcases.MarshalStep(t, got.Steps[0]))
	assert.JSONEq(t, `[{"PerReplica":[[5],[]]},{"PerReplica":[[9,9],[9]]}]`, inputcases.MarshalStep(t, got.Steps[1]))

	sizes := ds.RebatchSizes([]int{1})
	it, err := sizes.Open(context.Background())
	require.NoError(t, err)
	defer it.Close()
	_, err = it.Next(context.Background())
	assert.ErrorContains(t, err, "same batch size")
}

func TestRuleSizesNeedsABatchSize(t *testing.T) {
	ds := inputcases.Ragged([]input.Element{input.Leaf(input.Vector[int32](1))})
	assert.ErrorContains(t, inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 1, Replicas: 2},
		input.Options{Rule: input.Sizes}, -1).Err, "global batch size")
	d, err := input.Distribute(ds, input.Options{Replicas: 2, Policy: input.Off})
	require.NoError(t, err)
	assert.Equal(t, input.Chunks, d.Rule(), "an unknown batch size leaves only chunks")
}

func TestMappedBatchesAreCutAsTheyCome(t *testing.T) {
	files := func(batch int, drop bool) input.Dataset {
		return inputcases.TextFiles(t, 2, 5, false).Batch(batch, drop)
	}
	static := input.Leaf(input.TensorSpec{Kind: input.Float32, Dims: []int{8}})
	same := func(_ context.Context, e input.Element) (input.Element, error) { return e, nil }
	twice := func(_ context.Context, e input.Element) (input.Element, error) {
		v, err := input.Flat[float32](e.Leaf())
		return input.Leaf(input.Vector(append(slices.Clone(v), v...)...)), err
	}
	for name, c := range map[string]struct {
		ds   input.Dataset
		rule input.SplitRule
		want string
	}{
		"unmapped": {files(8, false), input.Sizes, "[[[0 1] [2 3] [4 5] [6 7]] [[8 9] [] [] []]]"},
		"mapped": {files(8, false).Map(same, input.MapOptions{Spec: files(8, false).Info().Spec}), input.Chunks,
			"[[[0 1] [2 3] [4 5] [6 7]] [[8] [9] [] []]]"},
		"told": {files(8, true).Map(same, input.MapOptions{Spec: static}), input.Sizes,
			"[[[0 1] [2 3] [4 5] [6 7]]]"},
		"doubled": {files(4, false).Map(twice, input.MapOptions{}).Take(1), input.Chunks,
			"[[[0 1] [2 3] [0 1] [2 3]]]"},
		"cut before": {files(8, false).Rebatch(2), input.Chunks,
			"[[[0] [1] [2] [3]] [[4] [5] [6] [7]] [[8] [] [] []] [[9] [] [] []]]"},
		"sizes before": {files(10, false).RebatchSizes([]int{6}), input.Chunks,
			"[[[0 1] [2 3] [4 5] []] [[6] [7] [8] [9]]]"},
		"batched anew": {files(8, false).Map(same, input.MapOptions{}).Unbatch().Batch(8, false), input.Sizes,
			"[[[0 1] [2 3] [4 5] [6 7]] [[8 9] [] [] []]]"},
		"one of several": {files(8, false).Concatenate(files(8, false).Map(same, input.MapOptions{})).Take(1), input.Chunks,
			"[[[0 1] [2 3] [4 5] [6 7]]]"},
	} {
		d, err := input.Distribute(c.ds, input.Options{Replicas: 4})
		require.NoError(t, err, name)
		assert.Equal(t, c.rule, d.Rule(), name)
		got := inputcases.RunCluster(t, c.ds, inputcases.Cluster{Hosts: 1, Replicas: 4}, input.Options{}, -1)
		assert.Equal(t, c.want, stepsOf(t, got), name)
	}
	d, err := input.Distribute(files(8, false).Map(same, input.MapOptions{}), input.Options{Replicas: 4})
	require.NoError(t, err)
	assert.Equal(t, 2, d.MaxRows(), "the size to pad to is what Batch says")
}

func TestFilesRepeatedForEverNeedNoVote(t *testing.T) {
	ds := inputcases.TextFiles(t, 2, 3, false).Batch(2, false).Repeat(-1)
	assert.Equal(t, input.Infinite, ds.Info().Cardinality)
	d, err := input.Distribute(ds, input.Options{Replicas: 2, Processes: 2, AnyProcess: func(context.Context, bool) (bool,
		error) {
		return false, errors.New("a vote")
	}})
	require.NoError(t, err)
	steps, err := d.Open(context.Background())
	require.NoError(t, err)
	defer steps.Close()
	for range 20 {
		_, err := steps.Next(context.Background())
		require.NoError(t, err)
	}
}

func TestAHostWithoutAShareDoesNotWaitForAVote(t *testing.T) {
	// The second host has no row, and is not to wait for a vote that the first never takes part in.
	ds := input.Range(1).ShardHint().Repeat(-1).Batch(2, false)
	votes := 0
	for host, want := range []error{nil, io.EOF} {
		d, err := input.Distribute(ds, input.Options{Replicas: 2, Processes: 2, Process: host, Policy: input.Hint,
			AnyProcess: func(context.Context, bool) (bool, error) { votes++; return false, nil }})
		require.NoError(t, err)
		steps, err := d.Open(context.Background())
		require.NoError(t, err)
		_, err = steps.Next(context.Background())
		assert.Equal(t, want, err)
		require.NoError(t, steps.Close())
	}
	assert.Zero(t, votes)
}

func TestFilesOfDifferentLengthEndTogether(t *testing.T) {
	paths, opts := memorySource("1\n2\n3\n4\n5\n", "6\n")
	ds := input.Lines(paths, opts).Map(inputcases.ParseNumber,
		input.MapOptions{Spec: input.Leaf(input.TensorSpec{Kind: input.Float32})})
	got := inputcases.RunCluster(t, ds.Batch(4, false), inputcases.Cluster{Hosts: 2, Replicas: 4}, input.Options{}, -1)
	assert.Equal(t, "[[[1] [2] [6] []] [[3] [4] [] []] [[5] [] [] []]]", stepsOf(t, got),
		"a host out of data takes part until the last is")
	got = inputcases.RunCluster(t, ds.Batch(1, true).Unbatch().Batch(4, true), inputcases.Cluster{Hosts: 2, Replicas: 4},
		input.Options{}, -1)
	assert.Equal(t, "[]", stepsOf(t, got), "with all shapes known a step needs all replicas")
	got = inputcases.RunCluster(t, ds.Batch(1, true), inputcases.Cluster{Hosts: 2, Replicas: 2}, input.Options{}, -1)
	assert.Equal(t, "[[[1] []] [[] [6]] [[2] []]]", stepsOf(t, got), "the dataset's shapes, although the parts have none")
}

func TestCardinalityIsTheNumberOfSteps(t *testing.T) {
	for n := range 12 {
		for global := 1; global < 6; global++ {
			for _, drop := range []bool{false, true} {
				ds := input.Range(n).Batch(global, drop)
				for replicas := 1; replicas <= 4; replicas++ {
					for name, open := range map[string]func() (*input.DistributedDataset, error){
						"distribute": func() (*input.DistributedDataset, error) {
							return input.Distribute(ds, input.Options{Replicas: replicas})
						},
						"off": func() (*input.DistributedDataset, error) {
							return input.Distribute(ds, input.Options{Replicas: replicas, Policy: input.Off})
						},
						"function": func() (*input.DistributedDataset, error) {
							return input.FromFunction(func(input.Context) (input.Dataset, error) { return ds, nil },
								input.Options{Replicas: replicas})
						},
					} {
						d, err := open()
						require.NoError(t, err)
						count, err := input.Reduce(context.Background(), d, 0, func(c int, s input.Step) (int, error) {
							for _, e := range s.Replicas {
								if name != "function" {
									require.LessOrEqual(t, e.Leaf().Dim(0), d.MaxRows())
								}
							}
							return c + 1, nil
						})
						require.NoError(t, err)
						if d.Cardinality() != input.UnknownCardinality {
							require.EqualValues(t, count, d.Cardinality(), "%s: range(%d).batch(%d, %v) on %d", name, n, global, drop,
								replicas)
						}
					}
				}
			}
		}
	}
	d, err := input.Distribute(input.Range(1).Repeat(-1).Batch(2, false), input.Options{Replicas: 2})
	require.NoError(t, err)
	assert.Equal(t, input.Infinite, d.Cardinality())
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	ds := input.Range(8).Batch(4, false)
	for name, o := range map[string]input.Options{
		"replicas":    {Replicas: -1},
		"hosts":       {Processes: -1},
		"host":        {Process: 1},
		"negative":    {Process: -1},
		"policy":      {Policy: 9},
		"rule":        {Rule: 9},
		"replication": {Replication: 9},
		"place":       {PlaceOnDevice: true},
	} {
		_, err := input.Distribute(ds, o)
		assert.Error(t, err, name)
		if name != "policy" && name != "rule" {
			_, err = input.FromFunction(func(input.Context) (input.Dataset, error) { return ds, nil }, o)
			assert.Error(t, err, name)
		}
	}
	_, err := input.FromFunction(nil, input.Options{})
	assert.Error(t, err)
	_, err = input.FromFunction(inputcases.Hundreds, input.Options{Replication: input.PerReplica, PlaceOnDevice: true,
		KeepOnHost: true})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	// Every hint about PlaceOnDevice names the one correction that works.
	for _, replication := range []input.ReplicationMode{input.PerWorker, input.PerReplica} {
		for _, keep := range []bool{false, true} {
			o := input.Options{Replication: replication, KeepOnHost: keep, PlaceOnDevice: true}
			_, err := input.FromFunction(inputcases.Hundreds, o)
			require.ErrorContains(t, err, "leave PlaceOnDevice out")
			o.PlaceOnDevice = false
			_, err = input.FromFunction(inputcases.Hundreds, o)
			require.NoError(t, err)
		}
	}
	broken := errors.New("no data")
	_, err = input.FromFunction(func(input.Context) (input.Dataset, error) { return input.Dataset{}, broken },
		input.Options{})
	assert.ErrorIs(t, err, broken)
	_, err = input.FromFunction(func(input.Context) (input.Dataset, error) { return input.Range(-1), nil },
		input.Options{})
	assert.Error(t, err)
	_, err = input.FromFunction(func(c input.Context) (input.Dataset, error) {
		if c.InputPipelineID == 0 {
			return input.Range(3), nil
		}
		return input.Lines(nil, input.FileOptions{}), nil
	}, input.Options{Replicas: 2, Replication: input.PerReplica})
	assert.ErrorContains(t, err, "give all replicas elements of the same spec")
}

func TestEpochChoosesTheOrder(t *testing.T) {
	order := func(epoch uint64) string {
		ds := input.Range(40).Shuffle(40, input.ShuffleOptions{}).Batch(4, false)
		return stepsOf(t, inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 1, Replicas: 2}, input.Options{Epoch: epoch},
			-1))
	}
	assert.Equal(t, order(1), order(1))
	assert.NotEqual(t, order(1), order(2))
}
