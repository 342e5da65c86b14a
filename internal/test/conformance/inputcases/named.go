package inputcases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// Ragged returns a dataset of vectors. Its spec declares their length as unknown.
func Ragged(list []input.Element) input.Dataset {
	seq := func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	spec := input.Leaf(input.TensorSpec{Kind: input.Int32, Dims: []int{input.Unknown}})
	return input.FromSeq(seq, input.SeqOptions{Spec: spec, Count: len(list)})
}

// runRebatch runs a case of legacy rebatching. If there are several outputs, the inputs describe
// the first output, and the names of the others describe their parameters.
func runRebatch(t *testing.T, c recorded) {
	var want map[string]json.RawMessage
	if len(c.Outputs) > 0 && c.Outputs[0] == '[' {
		checkPieces(t, c, input.Range(*c.Inputs.Range).Batch(*c.Inputs.Batch,
			c.Inputs.DropRemainder).Rebatch(*c.Inputs.NumReplicas))
		return
	}
	require.NoError(t, json.Unmarshal(c.Outputs, &want))
	params := map[string][3]int{ // range, batch, number of chunks
		"ex1":         {*c.Inputs.Range, *c.Inputs.Batch, *c.Inputs.NumReplicas},
		"partial":     {10, 4, 2},
		"last_1_of_4": {5, 4, 2},
		"seven_by_4":  {7, 7, 4},
	}
	for name, steps := range want {
		p, ok := params[name]
		require.True(t, ok, "output %q", name)
		var got []any
		for e, err := range input.Range(p[0]).Batch(p[1], false).Rebatch(p[2]).All(context.Background()) {
			require.NoError(t, err)
			got = append(got, Nested(e.Leaf()))
		}
		text, err := json.Marshal(got)
		require.NoError(t, err)
		assert.JSONEq(t, string(steps), string(text), name)
	}
}

// checkPieces compares the elements of a dataset with the list of the case.
func checkPieces(t *testing.T, c recorded, ds input.Dataset) {
	var got []any
	for e, err := range ds.All(context.Background()) {
		require.NoError(t, err)
		got = append(got, Nested(e.Leaf()))
	}
	text, err := json.Marshal(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(c.Outputs), string(text))
}

func runFromFunction(t *testing.T, c recorded, cl Cluster) {
	var calls [][]int
	got := RunHosts(t, cl, input.Options{}, -1, func(o input.Options) (*input.DistributedDataset, error) {
		return input.FromFunction(func(ctx input.Context) (input.Dataset, error) {
			calls = append(calls, []int{ctx.NumInputPipelines, ctx.InputPipelineID, ctx.NumReplicasInSync})
			return input.Range(*c.Inputs.Range).Batch(*c.Inputs.PerReplicaBatch, c.Inputs.DropRemainder), nil
		}, o)
	})
	checkSteps(t, c, got)
	var want struct{ Calls [][]int }
	require.NoError(t, json.Unmarshal(c.Outputs, &want))
	assert.Equal(t, want.Calls, calls)
}

// runNamed runs a case whose name contains the inputs.
func runNamed(t *testing.T, c recorded, cl Cluster, opts input.Options) {
	distributed := func(ds input.Dataset) { t.Helper(); checkSteps(t, c, RunCluster(t, ds, cl, opts, -1)) }
	name := c.Name
	switch {
	case strings.HasPrefix(name, "not batched"):
		distributed(input.Range(8))
	case strings.Contains(name, "static length"):
		// TensorFlow silently splits these elements over their feature axis, although its
		// documentation excludes this.
		ds := input.FromElements(input.Leaf(input.Vector[int32](0, 1, 2, 3)), input.Leaf(input.Vector[int32](4, 5, 6, 7)))
		require.ErrorIs(t, RunCluster(t, ds, cl, opts, -1).Err, input.ErrNotBatched)
	case strings.HasPrefix(name, "batched then unbatched"):
		distributed(input.Range(8).Batch(4, false).Unbatch())
	case strings.Contains(name, "map that keeps the batch"):
		distributed(input.Range(6).Batch(4, false).Map(OnInts(func(v []int64) []int64 {
			out := make([]int64, len(v))
			for i := range v {
				out[i] = v[i] * 10
			}
			return out
		}), input.MapOptions{Spec: int64Batch}))
	case strings.Contains(name, "map that changes the batch dimension"):
		distributed(input.Range(8).Batch(4, false).Map(OnInts(func(v []int64) []int64 {
			return append(append([]int64(nil), v...), v...)
		}), input.MapOptions{Spec: int64Batch}))
	case strings.HasPrefix(name, "infinite dataset"):
		checkSteps(t, c, RunCluster(t, input.Range(3).Repeat(-1).Batch(4, false), cl, opts, 3))
	case strings.HasPrefix(name, "PER_REPLICA with experimental_distribute_dataset"):
		opts.Replication = input.PerReplica
		distributed(input.Range(8).Batch(4, false))
	case strings.HasPrefix(name, "PER_REPLICA with distribute_datasets_from_function"):
		opts.Replication = input.PerReplica
		checkSteps(t, c, RunHosts(t, cl, opts, -1, func(o input.Options) (*input.DistributedDataset,
			error) {
			return input.FromFunction(Hundreds, o)
		}))
	case strings.HasPrefix(name, "place_dataset_on_device without PER_REPLICA"):
		opts.PlaceOnDevice = true
		checkSteps(t, c, RunHosts(t, cl, opts, -1, func(o input.Options) (*input.DistributedDataset,
			error) {
			return input.FromFunction(Hundreds, o)
		}))
	case strings.HasPrefix(name, "PER_REPLICA + place_on_device + fetch_to_device"):
		opts.PlaceOnDevice, opts.Replication = true, input.PerReplica
		checkSteps(t, c, RunHosts(t, cl, opts, -1, func(o input.Options) (*input.DistributedDataset,
			error) {
			return input.FromFunction(Hundreds, o)
		}))
	case strings.HasPrefix(name, "doc example: shard by pipeline"):
		checkSteps(t, c, RunHosts(t, cl, opts, -1, func(o input.Options) (*input.DistributedDataset, error) {
			return input.FromFunction(func(ctx input.Context) (input.Dataset, error) {
				size, err := ctx.PerReplicaBatchSize(4)
				return input.Range(8).Shard(ctx.NumInputPipelines, ctx.InputPipelineID).Batch(size, false), err
			}, o)
		}))
	case strings.HasPrefix(name, "dist_dataset.reduce"):
		assert.JSONEq(t, string(c.Outputs), fmt.Sprint(sumAll(t, input.Range(6).Batch(4, false), cl)))
	case strings.HasPrefix(name, "doc loop"):
		runDocLoop(t, c, cl)
	case strings.HasPrefix(name, "num_replicas not divisible"):
		_, err := input.Distribute(input.Range(8).Batch(4, false), input.Options{Replicas: 3, Processes: 2})
		checkSteps(t, c, Outcome{Err: err})
	case strings.HasPrefix(name, "default policy value"):
		var want struct {
			Default string
			Values  map[string]int
		}
		require.NoError(t, json.Unmarshal(c.Outputs, &want))
		var zero input.Options
		assert.Equal(t, policyNamed(t, want.Default), zero.Policy)
		for name, value := range want.Values {
			assert.EqualValues(t, value, policyNamed(t, name), name)
		}
	case strings.Contains(name, "get_next"):
		runGetNext(t, c, cl, opts)
	case strings.Contains(name, "batch_sizes_for_worker") || c.Section == "rebatch" && bytes.Contains(c.Outputs,
		[]byte(`"batch_sizes"`)):
		runBatchSizes(t, c)
	default:
		if ds, ok := Pipeline(name); ok {
			distributed(ds)
			return
		}
		runRebuilt(t, c, cl, opts)
	}
}

var int64Batch = input.Leaf(input.TensorSpec{Kind: input.Int64, Dims: []int{input.Unknown}})

// OnInts returns a MapFunc that applies f to int64 vectors.
func OnInts(f func([]int64) []int64) input.MapFunc {
	return func(_ context.Context, e input.Element) (input.Element, error) {
		v, err := input.Flat[int64](e.Leaf())
		return input.Leaf(input.Vector(f(v)...)), err
	}
}

// Hundreds returns a dataset whose numbers start at 100 times the ID of the input pipeline.
func Hundreds(ctx input.Context) (input.Dataset, error) {
	add := int64(100 * ctx.InputPipelineID)
	return input.Range(4).Batch(2, false).Map(OnInts(func(v []int64) []int64 {
		out := make([]int64, len(v))
		for i := range v {
			out[i] = v[i] + add
		}
		return out
	}), input.MapOptions{Spec: int64Batch}), nil
}

func sumAll(t *testing.T, ds input.Dataset, cl Cluster) int64 {
	d, err := input.Distribute(ds, input.Options{Replicas: cl.Replicas})
	require.NoError(t, err)
	total, err := input.Reduce(context.Background(), d, int64(0), func(sum int64, s input.Step) (int64,
		error) {
		return sum + sumStep(s), nil
	})
	require.NoError(t, err)
	return total
}

func sumStep(s input.Step) (sum int64) {
	for _, e := range s.Replicas {
		v, _ := input.Flat[int64](e.Leaf())
		for _, x := range v {
			sum += x
		}
	}
	return sum
}

// runDocLoop doubles all values and sums them for each step.
func runDocLoop(t *testing.T, c recorded, cl Cluster) {
	var want struct {
		PerStep []float64 `json:"per_step"`
		Total   float64
	}
	require.NoError(t, json.Unmarshal(c.Outputs, &want))
	d, err := input.Distribute(input.Range(6).Batch(4, false), input.Options{Replicas: cl.Replicas})
	require.NoError(t, err)
	var steps []float64
	total := 0.0
	for step, err := range d.All(context.Background()) {
		require.NoError(t, err)
		steps = append(steps, 2*float64(sumStep(step)))
		total += steps[len(steps)-1]
	}
	assert.Equal(t, want.PerStep, steps)
	assert.Equal(t, want.Total, total)
}

var callText = regexp.MustCompile(`^\.?(\w+)\(([^)]*)\)`)

// Pipeline parses a description such as range(8).batch(4).repeat(2).
func Pipeline(text string) (ds input.Dataset, ok bool) {
	for first := true; ; first = false {
		m := callText.FindStringSubmatch(text)
		if m == nil {
			return ds, !first && (text == "" || text[0] == ' ' || text[0] == ',')
		}
		var args []int
		drop := false
		for _, a := range strings.Split(m[2], ",") {
			switch a = strings.TrimSpace(a); {
			case a == "":
			case strings.HasPrefix(a, "drop_remainder"):
				drop = a != "drop_remainder=False"
			case regexp.MustCompile(`^-?\d+$`).MatchString(a):
				args = append(args, atoi(a))
			default:
				return ds, false
			}
		}
		arg := -1
		if len(args) > 0 {
			arg = args[0]
		}
		switch m[1] {
		case "range":
			ds = input.Range(arg)
		case "batch":
			ds = ds.Batch(arg, drop)
		case "repeat":
			ds = ds.Repeat(arg)
		case "take":
			ds = ds.Take(arg)
		case "skip":
			ds = ds.Skip(arg)
		case "prefetch":
			ds = ds.Prefetch(max(arg, 1))
		case "cache":
			ds = ds.Cache()
		case "unbatch":
			ds = ds.Unbatch()
		default:
			return ds, false
		}
		text = text[len(m[0]):]
	}
}

// runGetNext reads elements up to and past the end of the dataset. It checks whether each read
// returns an element, like get_next_as_optional, or the error of the last read, like get_next.
func runGetNext(t *testing.T, c recorded, cl Cluster, opts input.Options) {
	var has []bool
	steps := 1
	if json.Unmarshal(c.Outputs, &has) == nil {
		steps = 0
		for _, yes := range has {
			if yes {
				steps++
			}
		}
	}
	d, err := input.Distribute(input.Range(steps*cl.Replicas).Batch(cl.Replicas, false), withReplicas(opts, cl))
	require.NoError(t, err)
	next, stop := iter.Pull2(d.All(context.Background()))
	defer stop()
	if has == nil { // error of the read past the end
		var want struct {
			Error struct{ Type string }
		}
		require.NoError(t, json.Unmarshal(c.Outputs, &want))
		require.Contains(t, []string{"OutOfRangeError", "StopIteration"}, want.Error.Type)
		for range steps {
			_, err, ok := next()
			require.NoError(t, err)
			require.True(t, ok)
		}
		_, _, ok := next()
		require.False(t, ok)
		return
	}
	got := make([]bool, len(has))
	for i := range got {
		_, err, ok := next()
		require.NoError(t, err)
		got[i] = ok
	}
	assert.Equal(t, has, got)
}

func withReplicas(o input.Options, cl Cluster) input.Options {
	o.Replicas = cl.Replicas
	return o
}

// runBatchSizes checks a table of batch sizes. Each row contains the sizes of all workers.
func runBatchSizes(t *testing.T, c recorded) {
	var rows []struct {
		GlobalBatch       int     `json:"global_batch"`
		NumWorkers        int     `json:"num_workers"`
		ReplicasPerWorker int     `json:"replicas_per_worker"`
		ReplicasEach      int     `json:"num_replicas_per_worker"`
		BatchSizes        [][]int `json:"batch_sizes"`
	}
	d := json.NewDecoder(bytes.NewReader(c.Outputs))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&rows))
	require.NotEmpty(t, rows)
	for _, row := range rows {
		each := max(row.ReplicasPerWorker, row.ReplicasEach)
		require.Len(t, row.BatchSizes, row.NumWorkers)
		for worker, want := range row.BatchSizes {
			got, err := input.BatchSizes(row.GlobalBatch, row.NumWorkers*each, row.NumWorkers, worker)
			require.NoError(t, err)
			assert.Equal(t, want, got, "batch %d, worker %d of %d", row.GlobalBatch, worker, row.NumWorkers)
		}
	}
}
