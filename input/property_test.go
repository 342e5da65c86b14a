package input_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

// collect reads a whole pass as text, one line an element.
func collect(t *testing.T, ds input.Dataset) []string {
	t.Helper()
	it, err := ds.Open(context.Background())
	require.NoError(t, err)
	defer it.Close()
	return drain(t, it, 1000)
}

func drain(t *testing.T, it input.Iterator, limit int) []string {
	t.Helper()
	out := []string{}
	for len(out) < limit {
		e, err := it.Next(context.Background())
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		out = append(out, textOf(e))
	}
	return out
}

func textOf(e input.Element) string {
	text := ""
	for i, x := range e.Leaves() {
		text += fmt.Sprint(e.Paths()[i], x, x.Flat(), " ")
	}
	return text
}

// pipelines are one of each operation and some of them put together.
func pipelines(t *testing.T) map[string]input.Dataset {
	double := func(_ context.Context, e input.Element) (input.Element, error) {
		v, err := input.Flat[int64](e.Leaf())
		out := make([]int64, len(v))
		for i := range v {
			out[i] = 2 * v[i]
		}
		x, err2 := input.NewTensor(out, e.Leaf().Dims()...)
		if err == nil {
			err = err2
		}
		return input.Leaf(x), err
	}
	column, err := input.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	require.NoError(t, err)
	nest := input.Tuple(input.Leaf(input.Vector[int64](7, 8, 9)),
		input.Dict(map[string]input.Element{"x": input.Leaf(column)}))
	files := inputcases.TextFiles(t, 3, 7, false)
	return map[string]input.Dataset{
		"zero":     {},
		"range":    input.Range(10),
		"slices":   input.FromSlices(nest),
		"elements": input.FromElements(nest, nest),
		"seq": inputcases.Ragged([]input.Element{input.Leaf(input.Vector[int32](1, 2)),
			input.Leaf(input.Vector[int32](3))}),
		"files":           files,
		"batch":           input.Range(10).Batch(3, false),
		"unbatch":         input.Range(10).Batch(4, false).Unbatch(),
		"repeat":          input.Range(4).Repeat(3),
		"repeat none":     input.Range(4).Repeat(0),
		"repeat empty":    input.Range(0).Repeat(-1),
		"shuffle":         input.Range(40).Shuffle(7, input.ShuffleOptions{Seed: 3}),
		"shuffle all":     input.Range(12).Shuffle(100, input.ShuffleOptions{}),
		"shuffled epochs": input.Range(9).Shuffle(4, input.ShuffleOptions{Seed: 1}).Repeat(4),
		"map":             input.Range(9).Map(double, input.MapOptions{}),
		"parallel map":    input.Range(60).Map(double, input.MapOptions{Parallel: 3}),
		"take":            input.Range(9).Take(5),
		"skip":            input.Range(9).Skip(5),
		"shard":           input.Range(10).Shard(3, 1),
		"concatenate":     input.Range(3).Concatenate(input.Range(0), input.Range(4)),
		"zip": input.Zip(input.Range(9).Shuffle(3, input.ShuffleOptions{Seed: 4}), input.Range(5).Repeat(2),
			input.Range(4).Repeat(-1)).Batch(2, false),
		"cache":    input.Range(5).Cache().Repeat(3),
		"prefetch": input.Range(50).Prefetch(4),
		"rebatch":  input.Range(11).Batch(4, false).Rebatch(3),
		"sizes":    input.Range(11).Batch(4, false).RebatchSizes([]int{2, 0, 3}),
		"training": files.Cache().Shuffle(5, input.ShuffleOptions{Seed: 9}).Repeat(3).Batch(4, false).Prefetch(2),
		"shuffled shuffle": input.Range(30).Shuffle(5, input.ShuffleOptions{}).Repeat(2).Shuffle(3,
			input.ShuffleOptions{Seed: 2}),
		"unbatched prefix":  input.Range(20).Prefetch(3).Batch(6, false).Unbatch().Skip(2).Take(15).Batch(4, true),
		"repeated parallel": input.Range(20).Map(double, input.MapOptions{Parallel: 2}).Repeat(2).Prefetch(5),
	}
}

func TestRestoreAtAnyPositionContinuesExactly(t *testing.T) {
	ctx := context.Background()
	for name, ds := range pipelines(t) {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, ds.Err())
			whole := collect(t, ds)
			it, err := ds.Open(ctx)
			require.NoError(t, err)
			defer it.Close()
			for at := 0; ; at++ {
				state, err := it.State()
				require.NoError(t, err)
				data, err := state.Marshal()
				require.NoError(t, err)
				parsed, err := input.ParseState(data)
				require.NoError(t, err)
				// One pass from here, with a second save and restore on the way.
				again, err := ds.OpenAt(ctx, input.Pass{}, parsed)
				require.NoError(t, err, "position %d: %s", at, data)
				got := drain(t, again, 3)
				state, err = again.State()
				require.NoError(t, err)
				require.NoError(t, again.Close())
				again, err = ds.OpenAt(ctx, input.Pass{}, state)
				require.NoError(t, err, "second restore after position %d", at)
				got = append(got, drain(t, again, 1000)...)
				require.NoError(t, again.Close())
				require.Equal(t, whole[at:], got, "position %d: %s", at, data)
				if _, err := it.Next(ctx); err == io.EOF {
					require.Equal(t, len(whole), at)
					return
				}
			}
		})
	}
}

func TestDistributedPartsTogetherAreTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		hosts := 1 + rng.IntN(3)
		local := 1 + rng.IntN(3)
		n, global := rng.IntN(40), 1+rng.IntN(12)
		policy := []input.AutoShardPolicy{input.Off, input.Auto, input.Data, input.Hint}[rng.IntN(4)]
		rule := []input.SplitRule{input.RuleAuto, input.Chunks, input.Sizes}[rng.IntN(3)]
		drop := rng.IntN(3) == 0
		ds := input.Range(n).Batch(global, drop)
		name := fmt.Sprintf("range(%d).batch(%d, %v), %d hosts of %d replicas, %v, %v", n, global, drop, hosts, local, policy,
			rule)
		got := inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: hosts, Replicas: hosts * local},
			input.Options{Policy: policy, Rule: rule}, -1)
		require.NoError(t, got.Err, name)
		seen := map[int64]int{}
		for i, step := range got.Steps {
			require.Len(t, step, hosts*local, name)
			rows := 0
			for _, e := range step {
				v, err := input.Flat[int64](e.Leaf())
				require.NoError(t, err)
				rows += len(v)
				require.LessOrEqual(t, len(v), (global+hosts*local-1)/(hosts*local), "%s: step %d", name, i)
				for _, x := range v {
					seen[x]++
				}
			}
			// Hosts that each cut everything into chunks may meet the long chunks of one batch at
			// the same time.
			if rule != input.Chunks || policy == input.Data || policy == input.Auto || hosts == 1 {
				require.LessOrEqual(t, rows, global, "%s: step %d", name, i)
			}
		}
		copies := 1
		if policy == input.Off || policy == input.Hint {
			copies = hosts // every host reads everything
		}
		if hosts*local == 1 {
			copies = 1
		}
		want := n
		if drop {
			want = n / global * global
		}
		static := drop && global%(hosts*local) == 0 && hosts*local > 1
		for x := range int64(want) {
			if static { // a step that not all replicas have data for is left out
				require.LessOrEqual(t, seen[x], copies, "%s: value %d", name, x)
				continue
			}
			require.Equal(t, copies, seen[x], "%s: value %d", name, x)
		}
		require.LessOrEqual(t, len(seen), want, name)
	}
}

func FuzzRestore(f *testing.F) {
	ds := input.Range(20).Shuffle(4, input.ShuffleOptions{}).Repeat(2).Batch(3, false).RebatchSizes([]int{2, 1}).Take(9)
	it, err := ds.Open(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	for range 5 {
		state, err := it.State()
		if err != nil {
			f.Fatal(err)
		}
		data, _ := state.Marshal()
		f.Add(data)
		if _, err := it.Next(context.Background()); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := input.ParseState(data)
		if err != nil {
			require.ErrorIs(t, err, input.ErrState)
			return
		}
		it, err := ds.OpenAt(context.Background(), input.Pass{}, state)
		if err != nil {
			require.ErrorIs(t, err, input.ErrState)
			return
		}
		defer it.Close()
		for i := 0; i < 100; i++ {
			if _, err := it.Next(context.Background()); err != nil {
				return
			}
		}
		t.Fatal("more elements than the dataset takes")
	})
}
