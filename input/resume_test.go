package input_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// voting implements the vote between goroutines, each of which represents a process.
type voting struct {
	mu            sync.Mutex
	all           *sync.Cond
	n, come, gone int
	yes, outcome  bool
}

func newVoting(n int) *voting {
	v := &voting{n: n}
	v.all = sync.NewCond(&v.mu)
	return v
}

func (v *voting) any(_ context.Context, mine bool) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.yes = v.yes || mine
	round := v.gone
	if v.come++; v.come == v.n {
		v.outcome, v.yes, v.come = v.yes, false, 0
		v.gone++
		v.all.Broadcast()
	}
	for v.gone == round {
		v.all.Wait()
	}
	return v.outcome, nil
}

// life is one part of a run: a number of processes and replicas run a number of steps from a
// position.
type life struct{ replicas, processes, steps int }

// live runs a life. It returns the numbers of each step by replica, the joined position after the
// last one, and whether the data has ended.
func live(t *testing.T, open func(input.Options) (*input.DistributedDataset, error), opts input.Options, l life,
	from input.State) (steps [][][]int64, at input.State, ended bool) {
	t.Helper()
	ctx := context.Background()
	votes := newVoting(l.processes)
	opts.Replicas, opts.Processes, opts.AnyProcess = l.replicas, l.processes, votes.any
	states, ends, errs := make([]input.State, l.processes), make([]bool, l.processes), make([]error, l.processes)
	taken := make([][][][]int64, l.processes)
	var wg sync.WaitGroup
	for p := range l.processes {
		own := opts
		own.Process = p
		wg.Go(func() {
			errs[p] = func() (err error) {
				d, err := open(own)
				if err != nil {
					return err
				}
				s, err := d.OpenAt(ctx, from)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, s.Close()) }()
				for range l.steps {
					step, err := s.Next(ctx)
					if err == io.EOF {
						ends[p] = true
						break
					}
					if err != nil {
						return err
					}
					var rows [][]int64
					for _, e := range step.Replicas {
						flat, _ := input.Flat[int64](e.Leaf())
						rows = append(rows, flat)
						if m := s.MaxRows(); m > 0 && len(flat) > m {
							return fmt.Errorf("%d rows of a replica, where %d are the most", len(flat), m)
						}
					}
					taken[p] = append(taken[p], rows)
				}
				states[p], err = s.State()
				return err
			}()
		})
	}
	wg.Wait()
	for p, err := range errs {
		require.NoError(t, err, "process %d of %+v", p, l)
		require.Equal(t, ends[0], ends[p])
		require.Len(t, taken[p], len(taken[0]))
	}
	for i := range taken[0] {
		var step [][]int64
		for p := range taken {
			step = append(step, taken[p][i]...)
		}
		steps = append(steps, step)
	}
	rand.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
	at, err := input.JoinStates(states)
	require.NoError(t, err)
	text, err := at.Marshal()
	require.NoError(t, err)
	at, err = input.ParseState(text)
	require.NoError(t, err)
	return steps, at, ends[0]
}

// sortedRows are the numbers of a step, whatever replica has them.
func sortedRows(step [][]int64) []int64 {
	var all []int64
	for _, rows := range step {
		all = append(all, rows...)
	}
	slices.Sort(all)
	return all
}

// writer of sources that read files: each of the numbers 0 to n-1 is in one of some files.
func numberFiles(t *testing.T, rng *rand.Rand, n, files int, format func(values []int64) []byte) []string {
	t.Helper()
	dir := t.TempDir()
	shares := make([][]int64, files)
	for i := range n {
		to := rng.IntN(files)
		if rng.IntN(3) == 0 {
			to = 0 // one file is longer
		}
		shares[to] = append(shares[to], int64(i))
	}
	var paths []string
	for i, values := range shares {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		require.NoError(t, os.WriteFile(paths[i], format(values), 0o600))
	}
	return paths
}

var scalarNumber = input.Leaf(input.TensorSpec{Kind: input.Int64})

// numberOf makes numbers of texts.
func numberOf(parse func(text string) (int64, error)) func(context.Context, input.Element) (input.Element, error) {
	return func(_ context.Context, e input.Element) (input.Element, error) {
		text, err := input.Flat[string](e.Leaf())
		if err != nil {
			return e, err
		}
		n, err := parse(text[0])
		return input.Leaf(input.Scalar(n)), err
	}
}

func decimal(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func lines(values []int64) []byte {
	var b bytes.Buffer
	for _, v := range values {
		fmt.Fprintln(&b, v)
	}
	return b.Bytes()
}

// randomSource is a dataset of the numbers 0 to n-1 from one of the sources.
func randomSource(t *testing.T, rng *rand.Rand, n int) (name string, ds input.Dataset) {
	t.Helper()
	same := func(_ context.Context, e input.Element) (input.Element, error) { return e, nil }
	parallel := input.MapOptions{Spec: scalarNumber, Parallel: rng.IntN(3)}
	files := 8 + rng.IntN(4)
	switch rng.IntN(8) {
	case 0:
		return "range", input.Range(n)
	case 1:
		all := make([]int64, n)
		for i := range all {
			all[i] = int64(i)
		}
		return "tensors", input.FromSlices(input.Leaf(input.Vector(all...)))
	case 2:
		return "iterator", input.FromSeq(func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
			return func(yield func(input.Element, error) bool) {
				for i := range n {
					if !yield(input.Leaf(input.Scalar(int64(i))), nil) {
						return
					}
				}
			}
		}, input.SeqOptions{Spec: scalarNumber})
	case 3:
		paths := numberFiles(t, rng, n, files, lines)
		return "lines", input.Lines(paths, input.FileOptions{}).Map(numberOf(decimal), parallel)
	case 4:
		paths := numberFiles(t, rng, n, files, func(values []int64) (file []byte) {
			for _, v := range values {
				file = input.AppendTFRecord(file, []byte(fmt.Sprint(v)))
			}
			return file
		})
		return "records", input.TFRecords(paths, input.FileOptions{}).Map(numberOf(decimal), parallel)
	case 5:
		paths := numberFiles(t, rng, n, files, func(values []int64) []byte {
			return append([]byte("number\n"),
				lines(values)...)
		})
		return "csv", input.CSV(paths, input.CSVOptions{Header: true,
			Columns: []input.Column{{Name: "number", Kind: input.Int64}}}).
			Map(func(_ context.Context, e input.Element) (input.Element, error) {
				member, _ := e.Get("number")
				return member, nil
			}, parallel)
	case 6:
		paths := numberFiles(t, rng, n, files, func(values []int64) (file []byte) {
			for _, v := range values {
				file = binary.LittleEndian.AppendUint64(file, uint64(v))
			}
			return file
		})
		return "fixed records", input.FixedRecords(paths, input.FixedOptions{RecordBytes: 8}).
			Map(func(_ context.Context, e input.Element) (input.Element, error) {
				bytes, err := input.Flat[uint8](e.Leaf())
				if err != nil {
					return e, err
				}
				return input.Leaf(input.Scalar(int64(binary.LittleEndian.Uint64(bytes)))), nil
			}, parallel)
	}
	half := n / 2
	return "two parts", input.Range(half).Map(same,
		input.MapOptions{Spec: scalarNumber}).Concatenate(input.Range(n).Skip(half))
}

// randomPipeline puts operations behind a source, and batches. Passes is how often each number is
// in it.
func randomPipeline(t *testing.T, rng *rand.Rand) (name string, ds input.Dataset, n, passes int) {
	t.Helper()
	n, passes = 20+rng.IntN(150), 1
	name, ds = randomSource(t, rng, n)
	for range rng.IntN(4) {
		switch rng.IntN(6) {
		case 0:
			name, ds = name+".cache", ds.Cache()
		case 1, 2:
			size := 1 + rng.IntN(40)
			name, ds = fmt.Sprintf("%s.shuffle(%d)", name, size), ds.Shuffle(size, input.ShuffleOptions{Seed: rng.Uint64()})
		case 3:
			if passes == 1 {
				passes = 2
				name, ds = name+".repeat(2)", ds.Repeat(2)
			}
		case 4:
			name, ds = name+".prefetch", ds.Prefetch(1+rng.IntN(20))
		case 5:
			name, ds = name+".batch.unbatch", ds.Batch(3, false).Unbatch()
		}
	}
	batch := []int{8, 16, 24, 10, 13}[rng.IntN(5)]
	drop := rng.IntN(3) == 0
	name, ds = fmt.Sprintf("%s.batch(%d, %v)", name, batch, drop), ds.Batch(batch, drop)
	if rng.IntN(3) == 0 {
		name, ds = name+".prefetch", ds.Prefetch(2)
	}
	return name, ds, n, passes
}

// randomLife returns a life with a random number of processes on 8 devices.
func randomLife(rng *rand.Rand, most int) life {
	l := life{replicas: 1 << rng.IntN(4), steps: rng.IntN(most)}
	l.processes = 1 << rng.IntN(4)
	l.processes = min(l.processes, l.replicas)
	return l
}

// lives runs a dataset once without an interruption, and once in many lives. Each step of the lives
// must have the rows that it has in the whole run, and where a life has as many replicas as the
// whole run each replica its own.
func lives(t *testing.T, rng *rand.Rand, name string, open func(input.Options) (*input.DistributedDataset, error),
	opts input.Options) [][][]int64 {
	t.Helper()
	first := randomLife(rng, 6)
	whole, _, ended := live(t, open, opts, life{first.replicas, first.processes, 1000}, input.State{})
	require.True(t, ended, name)
	var got [][][]int64
	var at input.State
	told := name
	for l := first; ; l = randomLife(rng, 6) {
		if rng.IntN(3) == 0 {
			l.replicas = first.replicas
			l.processes = min(l.processes, l.replicas)
		}
		told += fmt.Sprintf(" %v", l)
		steps, after, ended := live(t, open, opts, l, at)
		for i, step := range steps {
			index := len(got) + i
			require.Less(t, index, len(whole), told)
			require.Equal(t, sortedRows(whole[index]), sortedRows(step), "%s: step %d", told, index)
			if l.replicas == first.replicas && stays(told, first.replicas) {
				require.Equal(t, whole[index], step, "%s: step %d by replica", told, index)
			}
		}
		got, at = append(got, steps...), after
		if ended {
			break
		}
	}
	require.Len(t, got, len(whole), told)
	return whole
}

// stays reports whether all lives told of have as many replicas.
func stays(told string, replicas int) bool {
	return !slices.ContainsFunc(livesOf(told), func(l life) bool { return l.replicas != replicas })
}

func livesOf(told string) (all []life) {
	for _, part := range bytes.Split([]byte(told), []byte("{"))[1:] {
		var l life
		if _, err := fmt.Sscanf(string(part), "%d %d %d", &l.replicas, &l.processes, &l.steps); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// TestEveryExampleOnceOverAnyLives: random pipelines, interrupted at random steps, go on with random
// numbers of processes and replicas.
func TestEveryExampleOnceOverAnyLives(t *testing.T) {
	rounds := 120
	if n, err := strconv.Atoi(os.Getenv("TPUSTRATEGY_LIVES")); err == nil {
		rounds = n
	}
	if testing.Short() {
		rounds = 40
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(17, seed))
		name, ds, n, passes := randomPipeline(t, rng)
		opts := input.Options{Policy: []input.AutoShardPolicy{input.Auto, input.Auto, input.Data, input.Off}[rng.IntN(4)]}
		if rng.IntN(3) == 0 {
			opts.Rule = []input.SplitRule{input.Chunks, input.Sizes}[rng.IntN(2)]
		}
		name = fmt.Sprintf("seed %d: %s, %v, %v:", seed, name, opts.Policy, opts.Rule)
		whole := lives(t, rng, name, func(o input.Options) (*input.DistributedDataset, error) {
			return input.Distribute(ds,
				o)
		}, opts)
		seen := map[int64]int{}
		total := 0
		for _, step := range whole {
			for _, x := range sortedRows(step) {
				seen[x]++
				total++
			}
		}
		if opts.Policy == input.Off {
			continue // every process uses all of it
		}
		for x, times := range seen {
			require.LessOrEqual(t, times, passes, "%s number %d", name, x)
		}
		if !bytes.Contains([]byte(name), []byte("true")) { // the remainder is not dropped
			require.Equal(t, n*passes, total, name)
		}
	}
}

// TestEveryExampleOnceFromAFunction: as above, of datasets that a function makes for each process or
// each replica.
func TestEveryExampleOnceFromAFunction(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(18, seed))
		n, batch, shuffle := 30+rng.IntN(100), 16, uint64(rng.IntN(20))
		drop, per := rng.IntN(2) == 0, rng.IntN(2) == 0
		open := func(o input.Options) (*input.DistributedDataset, error) {
			return input.FromFunction(func(c input.Context) (input.Dataset, error) {
				rows, err := c.PerReplicaBatchSize(batch)
				if err != nil {
					return input.Dataset{}, err
				}
				ds := input.Range(n).Shard(c.NumInputPipelines, c.InputPipelineID)
				if shuffle > 0 {
					ds = ds.Shuffle(int(shuffle), input.ShuffleOptions{Seed: shuffle})
				}
				return ds.Repeat(2).Batch(rows, drop), nil
			}, o)
		}
		var opts input.Options
		if per {
			opts.Replication = input.PerReplica
		}
		name := fmt.Sprintf("seed %d: %d numbers, shuffle %d, drop %v, by replica %v:", seed, n, shuffle, drop, per)
		whole := lives(t, rng, name, open, opts)
		total := 0
		for _, step := range whole {
			total += len(sortedRows(step))
		}
		if drop {
			require.LessOrEqual(t, total, 2*n, name)
		} else {
			require.Equal(t, 2*n, total, name)
		}
	}
}

func TestAPositionOfSomeProcessesIsRefused(t *testing.T) {
	ctx := context.Background()
	paths := numberFiles(t, rand.New(rand.NewPCG(1, 1)), 64, 8, lines)
	ds := input.Lines(paths, input.FileOptions{}).Map(numberOf(decimal), input.MapOptions{Spec: scalarNumber}).Batch(8,
		false)
	states := func(processes, steps int) (all []input.State) {
		for p := range processes {
			d, err := input.Distribute(ds, input.Options{Replicas: 4, Processes: processes, Process: p})
			require.NoError(t, err)
			s, err := d.Open(ctx)
			require.NoError(t, err)
			for range steps {
				_, err := s.Next(ctx)
				require.NoError(t, err)
			}
			state, err := s.State()
			require.NoError(t, err)
			require.NoError(t, s.Close())
			all = append(all, state)
		}
		return all
	}
	two := states(2, 1)
	for name, c := range map[string]struct {
		states []input.State
		want   string
	}{
		"a process is missing": {two[:1], "process 1 of 4 replicas on 2 processes is missing"},
		"another step":         {[]input.State{two[0], states(2, 2)[1]}, "after step 2"},
		"another division":     {[]input.State{two[0], states(4, 1)[1]}, "4 replicas on 4 processes"},
		"no position":          {[]input.State{two[0], {Op: "range", Counters: []int64{3}}}, "range"},
		"damaged": {[]input.State{{Op: "steps", Counters: []int64{1, 4, 3, 0}, Inputs: two[0].Inputs}},
			"of 4 replicas on 3 processes"},
	} {
		_, err := input.JoinStates(c.states)
		assert.ErrorIs(t, err, input.ErrState, name)
		assert.ErrorContains(t, err, c.want, name)
	}
	one, err := input.Distribute(ds, input.Options{Replicas: 4})
	require.NoError(t, err)
	_, err = one.OpenAt(ctx, two[0])
	assert.ErrorIs(t, err, input.ErrState)
	assert.ErrorContains(t, err, "join the positions of all processes with JoinStates")
	nothing, err := input.JoinStates(nil)
	require.NoError(t, err)
	assert.True(t, nothing.IsZero())
}

// TestShortBatchesWithinAPassAreUsedOnce: rows are cut across the borders of batches, so that the
// steps of one replica, which gets the batches as they are, are others.
func TestShortBatchesWithinAPassAreUsedOnce(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(19, seed))
		n, batch := 20+rng.IntN(60), 4+rng.IntN(10)
		_, ds := randomSource(t, rng, n)
		ds = ds.Shuffle(1+rng.IntN(20), input.ShuffleOptions{Seed: seed}).Batch(batch, false).Repeat(3)
		opts := input.Options{Policy: []input.AutoShardPolicy{input.Auto, input.Data}[rng.IntN(2)],
			Rule: []input.SplitRule{input.RuleAuto, input.Chunks, input.Sizes}[rng.IntN(3)]}
		seen := map[int64]int{}
		told := fmt.Sprintf("seed %d: %d numbers in batches of %d, %v, %v:", seed, n, batch, opts.Policy, opts.Rule)
		for at, ended := (input.State{}), false; !ended; {
			l := randomLife(rng, 6)
			told += fmt.Sprintf(" %v", l)
			var steps [][][]int64
			steps, at, ended = live(t, func(o input.Options) (*input.DistributedDataset, error) {
				return input.Distribute(ds,
					o)
			}, opts, l, at)
			for _, step := range steps {
				for _, x := range sortedRows(step) {
					seen[x]++
				}
			}
		}
		require.Len(t, seen, n, told)
		for x, times := range seen {
			require.Equal(t, 3, times, "%s number %d", told, x)
		}
	}
}
