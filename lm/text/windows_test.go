package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// some returns tokens of some texts of bytes, an empty one among them.
func some(t *testing.T, sizes ...int) *Tokens {
	t.Helper()
	contents := map[string]string{}
	for i, n := range sizes {
		text := make([]byte, n)
		for k := range text {
			text[k] = byte(1 + (i*7+k)%255)
		}
		contents[fmt.Sprintf("%03d.txt", i)] = string(text)
	}
	files, err := ListFiles(write(t, contents), "*.txt")
	require.NoError(t, err)
	tokens, err := Encode(t.Context(), files, Bytes())
	require.NoError(t, err)
	return tokens
}

// all returns the tokens of t.
func all(t *Tokens) []int32 {
	ids := make([]int32, t.Len())
	return ids[:t.Read(ids, 0)]
}

func TestTextsStandBetweenSeparators(t *testing.T) {
	files, err := ListFiles(write(t, map[string]string{"a": "xy", "b": "", "c": "z\xff"}), "*")
	require.NoError(t, err)
	tokens, err := Encode(t.Context(), files, Bytes())
	require.NoError(t, err)
	assert.Equal(t, []int32{0, 'x', 'y', 0, 0, 'z', 0xff, 0}, all(tokens))
	assert.EqualValues(t, 4, tokens.Bytes())
	assert.Equal(t, 7, tokens.Targets())
	one, err := EncodeText([]byte("xy"), Bytes())
	require.NoError(t, err)
	assert.Equal(t, []int32{0, 'x', 'y', 0}, all(one))
	assert.Zero(t, one.Read(make([]int32, 1), -1))
	assert.Zero(t, one.Read(make([]int32, 1), 4))
}

// pass returns the windows' first tokens' places in order, of texts in which every window differs.
func pass(t *testing.T, ds input.Dataset, epoch uint64) (out []string) {
	t.Helper()
	for e, err := range ds.Pass(t.Context(), input.Pass{Epoch: epoch}) {
		require.NoError(t, err)
		out = append(out, fmt.Sprint(e.Leaves()[0].Flat()))
	}
	return out
}

func TestEachPassHasEachWindowOnce(t *testing.T) {
	tokens := some(t, 100, 0, 57, 1, 230)
	stream := all(tokens)
	for length := 1; length <= tokens.Targets(); length += 1 + length/3 {
		ordered, err := tokens.Windows(length, WindowOptions{InOrder: true})
		require.NoError(t, err)
		want := pass(t, ordered, 0)
		require.Len(t, want, tokens.Targets()/length)
		for i, w := range want {
			require.Equal(t, fmt.Sprint(stream[i*length:i*length+length+1]), w)
		}
		assert.EqualValues(t, len(want), ordered.Info().Cardinality)
		slices.Sort(want)
		for epoch := range uint64(3) {
			ds, err := tokens.Windows(length, WindowOptions{Seed: 5})
			require.NoError(t, err)
			got := pass(t, ds, epoch)
			assert.Equal(t, got, pass(t, ds, epoch), "the same for the same seed and pass")
			slices.Sort(got)
			assert.Equal(t, want, got)
		}
	}
	ds, err := tokens.Windows(8, WindowOptions{Seed: 5})
	require.NoError(t, err)
	other, err := tokens.Windows(8, WindowOptions{Seed: 6})
	require.NoError(t, err)
	assert.NotEqual(t, pass(t, ds, 0), pass(t, ds, 1), "another order in each pass")
	assert.NotEqual(t, pass(t, ds, 0), pass(t, other, 0), "another order for each seed")
}

// Orders are permutations of any number, and spread: no number has a preferred place.
func TestAPermutationHasEachNumberOnce(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097} {
		for key := range uint64(5) {
			seen := make([]bool, n)
			for i := range n {
				at := permutation{n, splitMix64(key)}.apply(i)
				require.Less(t, at, n)
				require.False(t, seen[at])
				seen[at] = true
			}
		}
	}
	const n, keys = 10, 5000
	var counts [n][n]float64
	for key := range uint64(keys) {
		for i := range uint64(n) {
			counts[i][permutation{n, splitMix64(key)}.apply(i)]++
		}
	}
	chi := 0.0
	for i := range n {
		for k := range n {
			d := counts[i][k] - keys/n
			chi += d * d / (keys / n)
		}
	}
	assert.Less(t, chi, 150.0) // 81 degrees of freedom
}

func TestHeldOutWindowsPredictEachTokenOnce(t *testing.T) {
	tokens := some(t, 33, 0, 64, 5)
	stream := all(tokens)
	for _, length := range []int{1, 2, 7, 16, 100, 104, 105, 106, 500} {
		for _, batch := range []int{1, 4, 5} {
			ds, err := tokens.EvalWindows(length, batch)
			require.NoError(t, err)
			var got []int32
			n, sum := 0, float32(0)
			for e, err := range ds.Batch(batch, true).All(t.Context()) {
				require.NoError(t, err)
				rows, weights := e.Leaves()[0].Flat().([]int32), e.Leaves()[1].Flat().([]float32)
				for r := range batch {
					for k := range length {
						if weights[r*length+k] == 1 {
							require.Equal(t, stream[len(got)], rows[r*(length+1)+k], "what it is predicted from")
							got = append(got, rows[r*(length+1)+k+1])
						}
						sum += weights[r*length+k]
					}
				}
				n += batch
			}
			assert.Equal(t, stream[1:], got)
			assert.EqualValues(t, tokens.Targets(), sum)
			assert.EqualValues(t, n, ds.Info().Cardinality)
			assert.Less(t, n-(tokens.Targets()+length-1)/length, batch)
		}
	}
}

func TestWindowsResumeExactly(t *testing.T) {
	tokens := some(t, 300, 200)
	open := func() *input.DistributedDataset {
		ds, err := tokens.Windows(9, WindowOptions{Seed: 3})
		require.NoError(t, err)
		d, err := input.Distribute(ds.Repeat(3).Batch(4, true), input.Options{Replicas: 2})
		require.NoError(t, err)
		return d
	}
	next := func(s *input.Steps) string {
		step, err := s.Next(t.Context())
		if err == io.EOF {
			return "end"
		}
		require.NoError(t, err)
		return fmt.Sprint(step.Replicas[0].Leaf().Flat(), step.Replicas[1].Leaf().Flat())
	}
	var want []string
	var states []input.State
	steps, err := open().Open(t.Context())
	require.NoError(t, err)
	for {
		state, err := steps.State()
		require.NoError(t, err)
		text, err := json.Marshal(state)
		require.NoError(t, err)
		var through input.State
		require.NoError(t, json.Unmarshal(text, &through))
		states = append(states, through)
		if want = append(want, next(steps)); want[len(want)-1] == "end" {
			break
		}
	}
	require.Greater(t, len(want), 30)
	for i := 0; i < len(want); i += 5 {
		resumed, err := open().OpenAt(t.Context(), states[i])
		require.NoError(t, err)
		for k := i; k < len(want); k++ {
			require.Equal(t, want[k], next(resumed), "step %d from %d", k, i)
		}
	}
}

func TestProcessesTakeEachWindowOnce(t *testing.T) {
	tokens := some(t, 300, 211)
	ds, err := tokens.Windows(10, WindowOptions{Seed: 1})
	require.NoError(t, err)
	want := pass(t, ds, 0)
	for _, processes := range []int{2, 4} {
		var got []string
		for p := range processes {
			d, err := input.Distribute(ds.Batch(8, true), input.Options{Replicas: 4, Processes: processes, Process: p})
			require.NoError(t, err)
			for step, err := range d.All(t.Context()) {
				require.NoError(t, err)
				for _, e := range step.Replicas {
					rows := e.Leaf()
					for r := range rows.Dim(0) {
						row, err := rows.Rows(r, r+1)
						require.NoError(t, err)
						got = append(got, fmt.Sprint(row.Flat()))
					}
				}
			}
		}
		whole := slices.Clone(want[:len(want)/8*8])
		slices.Sort(whole)
		slices.Sort(got)
		assert.Equal(t, whole, got)
	}
}

func TestAPositionOfOtherWindowsIsRefused(t *testing.T) {
	tokens := some(t, 300)
	ds, err := tokens.Windows(10, WindowOptions{Seed: 1})
	require.NoError(t, err)
	it, err := ds.Open(t.Context())
	require.NoError(t, err)
	_, err = it.Next(t.Context())
	require.NoError(t, err)
	state, err := it.State()
	require.NoError(t, err)
	changed, err := EncodeText([]byte(strings.Repeat("x", 300)), Bytes())
	require.NoError(t, err)
	for name, other := range map[string]func() (input.Dataset, error){
		"length":   func() (input.Dataset, error) { return tokens.Windows(11, WindowOptions{Seed: 1}) },
		"seed":     func() (input.Dataset, error) { return tokens.Windows(10, WindowOptions{Seed: 2}) },
		"texts":    func() (input.Dataset, error) { return changed.Windows(10, WindowOptions{Seed: 1}) },
		"held out": func() (input.Dataset, error) { return tokens.EvalWindows(10, 1) },
	} {
		ds, err := other()
		require.NoError(t, err)
		_, err = ds.OpenAt(t.Context(), input.Pass{}, state)
		require.ErrorIs(t, err, input.ErrState, name)
	}
	for _, at := range [][]int64{{-1, state.Counters[1], 10, state.Counters[3]}, {31, state.Counters[1], 10,
		state.Counters[3]}, {0}} {
		_, err = ds.OpenAt(t.Context(), input.Pass{}, input.State{Op: "windows", Counters: at})
		require.ErrorIs(t, err, input.ErrState)
	}
}

func TestWindowsThatCannotBeAreRefused(t *testing.T) {
	tokens := some(t, 10)
	for name, make := range map[string]func() (input.Dataset, error){
		"longer than the text": func() (input.Dataset, error) { return tokens.Windows(12, WindowOptions{}) },
		"no tokens":            func() (input.Dataset, error) { return tokens.Windows(0, WindowOptions{}) },
		"a seed and no shuffle": func() (input.Dataset, error) {
			return tokens.Windows(2, WindowOptions{Seed: 1,
				InOrder: true})
		},
		"held out, no tokens": func() (input.Dataset, error) { return tokens.EvalWindows(-1, 1) },
		"held out, no batch":  func() (input.Dataset, error) { return tokens.EvalWindows(2, 0) },
		"held out, huge":      func() (input.Dataset, error) { return tokens.EvalWindows(2, 1<<40) },
		"too long":            func() (input.Dataset, error) { return tokens.EvalWindows(1<<40, 1) },
	} {
		_, err := make()
		require.Error(t, err, name)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
	ds, err := tokens.Windows(11, WindowOptions{})
	require.NoError(t, err)
	assert.Len(t, pass(t, ds, 0), 1)
}

// The tokens of a large file take what its bytes take, and reading it little more.
func TestALargeFileTakesItsOwnSizeInMemory(t *testing.T) {
	const size = 96 << 20
	path := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(path)
	require.NoError(t, err)
	line := bytes.Repeat([]byte("a line of a large file\n"), 1<<12)
	for n := 0; n < size; n += len(line) {
		_, err := f.Write(line)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	files, err := SingleFile(path)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tokens, err := Encode(t.Context(), files, Bytes())
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size+40<<20), "all that was ever taken")
	assert.EqualValues(t, files.Bytes(), tokens.Bytes())
}

// wide is a tokenizer with many tokens, some of which may be invalid.
type wide struct {
	vocabulary int
	separator  int32
	ids        []int32
}

func (w wide) Vocabulary() int                          { return w.vocabulary }
func (w wide) Separator() int32                         { return w.separator }
func (w wide) Append(ids []int32, text []byte) []int32  { return append(ids, w.ids...) }
func (wide) AppendText([]byte, []int32) ([]byte, error) { return nil, nil }

func TestTokensAreKeptInAsFewBytesAsTheyTake(t *testing.T) {
	for vocabulary, width := range map[int]int{2: 1, 256: 1, 257: 2, 1 << 16: 2, 1<<16 + 1: 4, 1 << 30: 4} {
		ids := make([]int32, blockTokens+100)
		for i := range ids {
			ids[i] = rand.Int32N(int32(vocabulary))
		}
		ids[5] = int32(vocabulary - 1)
		tokens, err := EncodeText([]byte("x"), wide{vocabulary, 1, ids})
		require.NoError(t, err)
		assert.Equal(t, width, tokens.bytesPerToken)
		got := all(tokens)
		require.True(t, slices.Equal(ids, got[1:len(got)-1]))
		part := make([]int32, 64)
		require.Equal(t, 64, tokens.Read(part, blockTokens-10))
		require.Equal(t, got[blockTokens-10:blockTokens+54], part)
	}
}

func TestATokenizerThatIsWrongIsRefused(t *testing.T) {
	for name, tok := range map[string]Tokenizer{"none": nil, "empty": wide{0, 0, nil}, "separator": wide{3, 3, nil},
		"below": wide{3, -1, nil},
		"token": wide{3, 0, []int32{3}}, "negative": wide{3, 0, []int32{-1}}} {
		_, err := EncodeText([]byte("x"), tok)
		require.Error(t, err, name)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
	_, err := Encode(t.Context(), Files{}, Bytes())
	require.ErrorContains(t, err, "there are no texts")
}

func BenchmarkEncodeBytes(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x")
	writeRandom(b, path, 8<<20)
	files, err := SingleFile(path)
	require.NoError(b, err)
	b.SetBytes(files.Bytes())
	for b.Loop() {
		_, err := Encode(b.Context(), files, Bytes())
		require.NoError(b, err)
	}
}
