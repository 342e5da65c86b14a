package text

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// prose is a text that has words often enough.
var prose = []byte(strings.Repeat("for i := range n {\n\tsum += values[i]\n}\nif err != nil {\n\treturn nil, err\n}\n",
	40) +
	strings.Repeat("the quick brown fox jumps over the lazy dog; it's the fox's day\n", 30) + strings.Repeat("----", 50) +
	"\n\n\n\t\t\t\t// Größe: naïve 日本語 🎉\n")

func learned(t testing.TB, vocabulary int) *BPE {
	t.Helper()
	b, err := TrainText(context.Background(), prose, vocabulary, TrainOptions{})
	require.NoError(t, err)
	return b
}

// The merges of a text so short that they are counted by hand.
func TestTrainByHand(t *testing.T) {
	b, err := TrainText(t.Context(), []byte("the then the"), 257+4, TrainOptions{})
	require.NoError(t, err)
	var got []string
	for _, m := range b.merges {
		got = append(got, b.tokenText[m.left]+"|"+b.tokenText[m.right])
	}
	// h+e and t+h occur three times, and h is before t. Then t+he three times, " "+the twice.
	assert.Equal(t, []string{"h|e", "t|he", " |the", " the|n"}, got)
	assert.Equal(t, 261, b.Vocabulary())
	assert.Zero(t, b.Separator())
	token := func(id int32) string { s, _ := b.Token(id); return s }
	assert.Equal(t, EndOfText, token(0))
	assert.Equal(t, " then", token(260))
	ids := b.Append(nil, []byte("the then the thing"))
	var words []string
	for _, id := range ids {
		words = append(words, token(id))
	}
	assert.Equal(t, []string{"the", " then", " the", " ", "t", "h", "i", "n", "g"}, words)
}

// slowTrain learns by recounting all pairs for each merge.
func slowTrain(words map[string]int64, n int) (out []string) {
	b := newByteBPE()
	split := map[string][]int32{}
	for w := range words {
		for _, c := range []byte(w) {
			split[w] = append(split[w], b.byteIDs[c])
		}
	}
	ids := map[string]int32{}
	for range n {
		counts := map[[2]int32]int64{}
		for w, tokens := range split {
			for i := range len(tokens) - 1 {
				counts[[2]int32{tokens[i], tokens[i+1]}] += words[w]
			}
		}
		var best [2]int32
		for pair, c := range counts {
			if c > counts[best] || c == counts[best] && (pair[0] < best[0] || pair[0] == best[0] && pair[1] < best[1]) {
				best = pair
			}
		}
		if counts[best] == 0 {
			return out
		}
		joined := b.tokenText[best[0]] + b.tokenText[best[1]]
		id, ok := ids[joined]
		if !ok {
			id = int32(len(b.tokenText))
			b.tokenText, ids[joined] = append(b.tokenText, joined), id
		}
		out = append(out, fmt.Sprint(best, id))
		for w, tokens := range split {
			for i := 0; i+1 < len(tokens); i++ {
				if tokens[i] == best[0] && tokens[i+1] == best[1] {
					tokens[i] = id
					tokens = slices.Delete(tokens, i+1, i+2)
				}
			}
			split[w] = tokens
		}
	}
	return out
}

// Incremental counts equal recounted ones, also for runs of one character, whose pairs overlap.
func TestTrainCountsExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var text []byte
		for range 20 + r.IntN(200) {
			text = append(text, "aaab b-"[r.IntN(7)])
		}
		counts, err := newWordCounts(numBaseTokens, TrainOptions{})
		require.NoError(t, err)
		counts.addWords(text)
		words := map[string]int64{}
		for i, w := range counts.words {
			words[w] = counts.counts[i]
		}
		want := slowTrain(words, 1000)
		most := newByteBPE().Vocabulary()
		for _, w := range want {
			var a, b, id int
			_, err := fmt.Sscanf(w, "[%d %d] %d", &a, &b, &id)
			require.NoError(t, err)
			most = max(most, id+1)
		}
		b, err := trainBPE(t.Context(), counts, most)
		require.NoError(t, err)
		var got []string
		for _, m := range b.merges {
			got = append(got, fmt.Sprint([2]int32{m.left, m.right}, m.joined))
		}
		require.Equal(t, want[:len(got)], got, "%q", text)
	}
}

func TestTrainSaysWhatIsPossible(t *testing.T) {
	for vocabulary, want := range map[int]string{0: "at least 257", -5: "at least 257", 256: "at least 257",
		300: "a vocabulary of at most 25"} {
		_, err := TrainText(t.Context(), []byte("ab"), vocabulary, TrainOptions{})
		require.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		_, err = Train(t.Context(), Files{}, vocabulary, TrainOptions{})
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	_, err := TrainText(t.Context(), prose, 300, TrainOptions{Pattern: 9})
	require.ErrorContains(t, err, "unknown pattern SplitPattern(9); use GPT2")
	b, err := TrainText(t.Context(), nil, 257, TrainOptions{})
	require.NoError(t, err)
	assert.Equal(t, 257, b.Vocabulary())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = TrainText(ctx, prose, 300, TrainOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

// The same texts result in exactly the same tokenizer, independent of the iteration order of Go
// maps.
func TestTrainIsDeterministic(t *testing.T) {
	var first bytes.Buffer
	require.NoError(t, learned(t, 350).Write(&first))
	files, err := ListFiles(write(t, map[string]string{"a": string(prose)}), "*")
	require.NoError(t, err)
	for range 3 {
		b, err := Train(t.Context(), files, 350, TrainOptions{})
		require.NoError(t, err)
		var again bytes.Buffer
		require.NoError(t, b.Write(&again))
		require.Equal(t, first.String(), again.String())
	}
}

// A tokenizer with fewer tokens is the beginning of one with more.
func TestFewerTokensAreTheFirstOnes(t *testing.T) {
	small, large := learned(t, 300), learned(t, 350)
	assert.Equal(t, small.merges, large.merges[:len(small.merges)])
	assert.Equal(t, small.tokenText, large.tokenText[:300])
}

// Lines are cut before their ends, and their tokens go over words.
func TestTokensOfLines(t *testing.T) {
	b, err := TrainText(t.Context(), prose, 360, TrainOptions{Pattern: Lines})
	require.NoError(t, err)
	for _, s := range odd {
		goesBack(t, b, []byte(s))
	}
	assert.Equal(t, []string{"x", "\n", "\n\ty", "\n"}, cutInto(Lines, "x\n\n\ty\n"))
	var tokens []string
	for _, id := range b.Append(nil, []byte("\nif err != nil {")) {
		s, _ := b.Token(id)
		tokens = append(tokens, s)
	}
	assert.Equal(t, []string{"\nif err != nil {"}, tokens)
	assert.Less(t, len(b.Append(nil, prose)), len(learned(t, 360).Append(nil, prose)))
}

func cutInto(w SplitPattern, text string) (out []string) {
	for i := 0; i < len(text); {
		end := patterns[w].wordEnd([]byte(text), i)
		out = append(out, text[i:end])
		i = end
	}
	return out
}

// slowJoin joins by the definition: the pair that was learned first, the leftmost first.
func slowJoin(b *BPE, word []byte) (tokens []int32) {
	for _, c := range word {
		tokens = append(tokens, b.byteIDs[c])
	}
	for {
		best, at := len(b.merges), 0
		for i := range len(tokens) - 1 {
			for rank, m := range b.merges[:best] {
				if m.left == tokens[i] && m.right == tokens[i+1] {
					best, at = rank, i
					break
				}
			}
		}
		if best == len(b.merges) {
			return tokens
		}
		tokens[at] = b.merges[best].joined
		tokens = slices.Delete(tokens, at+1, at+2)
	}
}

func TestWordsAreJoinedInTheOrderLearned(t *testing.T) {
	b := learned(t, 360)
	r := rand.New(rand.NewPCG(5, 6))
	e := b.encoders.Get().(*encoder)
	for range 3000 {
		from := r.IntN(len(prose) - 1)
		word := slices.Clone(prose[from:min(len(prose), from+1+r.IntN(2*maxShortWord))])
		if r.IntN(3) == 0 {
			word = bytes.Repeat([]byte{"-ae "[r.IntN(4)]}, 1+r.IntN(2*maxShortWord))
		}
		want := slowJoin(b, word)
		require.Equal(t, want, e.encodeWord(nil, word), "%q", word)
		require.Equal(t, want, e.encodeWord([]int32{7}, word)[1:], "%q again", word)
	}
}

// A text that is one word of a MiB takes no time that grows with its square.
func TestALongWordIsEncoded(t *testing.T) {
	b := learned(t, 360)
	for _, c := range []string{"-", " ", "a", "\xff"} {
		text := bytes.Repeat([]byte(c), 1<<20)
		ids := b.Append(nil, text)
		back, err := b.AppendText(nil, ids)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, back))
	}
}

// A special token in a text is found, unless the tokenizer is SpecialAsText.
func TestSpecialTokensInTexts(t *testing.T) {
	b := learned(t, 300)
	ids := b.Append(nil, []byte("a<|endoftext|>b"))
	assert.Equal(t, []int32{b.byteIDs['a'], b.Separator(), b.byteIDs['b']}, ids)
	plain := b.SpecialAsText()
	ids = plain.Append(nil, []byte("a<|endoftext|>b"))
	assert.NotContains(t, ids, b.Separator())
	back, err := plain.AppendText(nil, ids)
	require.NoError(t, err)
	assert.Equal(t, "a<|endoftext|>b", string(back))
	assert.Equal(t, b.Append(nil, prose), plain.Append(nil, prose))
}

// goesBack requires that decoding the tokens of a text returns the text.
func goesBack(t *testing.T, b *BPE, text []byte) {
	t.Helper()
	ids := b.Append(nil, text)
	back, err := b.AppendText(nil, ids)
	require.NoError(t, err)
	require.True(t, bytes.Equal(text, back), "%q", text)
	for _, id := range ids {
		require.NotEqual(t, b.separator, id)
	}
}

func TestAnyBytesComeBack(t *testing.T) {
	b := learned(t, 360)
	goesBack(t, b.SpecialAsText(), []byte("what <|endoftext|> says"))
	for _, s := range odd {
		goesBack(t, b, []byte(s))
	}
	r := rand.New(rand.NewPCG(9, 9))
	for range 2000 {
		text := make([]byte, r.IntN(100))
		for i := range text {
			text[i] = byte(r.Uint32())
			if r.IntN(2) == 0 {
				text[i] = " \n'sa1\xc3\xa9\xe2\x80"[r.IntN(10)]
			}
		}
		goesBack(t, b, text)
	}
}

// A vocabulary that is too large for the text is an error, without allocating a table of its size.
func TestAHugeVocabularyIsRefusedAtOnce(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for vocabulary, want := range map[int]string{1 << 28: "the texts give ", 1<<31 - 1: "the texts give ",
		1 << 31: "2147483648", math.MaxInt: "9223372036854775807"} {
		_, err := TrainText(t.Context(), []byte("a little text"), vocabulary, TrainOptions{})
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}

func FuzzTokensOfAnyBytes(f *testing.F) {
	b := learned(f, 360)
	var tokenizers []*BPE
	for w := range patterns {
		other := *b
		other.pattern = SplitPattern(w)
		tokenizers = append(tokenizers, &other)
	}
	for _, s := range odd {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, b := range tokenizers {
			goesBack(t, b, text)
		}
	})
}

func TestManyGoroutinesEncode(t *testing.T) {
	b := learned(t, 360)
	want := b.Append(nil, prose)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				assert.Equal(t, want, b.Append(nil, prose))
			}
		})
	}
	wg.Wait()
}

func TestNumbersThatAreNoTokens(t *testing.T) {
	b := learned(t, 300)
	for _, id := range []int32{-1, 300, 1 << 30} {
		_, err := b.AppendText(nil, []int32{1, id})
		assert.ErrorContains(t, err, fmt.Sprintf("number 1 is %d; give tokens of this tokenizer, 0 to 299", id))
		_, ok := b.Token(id)
		assert.False(t, ok)
	}
}

// Windows of a BPE's tokens, and fewer bits for a byte by counting them than by counting bytes.
func TestTokensOfABPE(t *testing.T) {
	b := learned(t, 360)
	tokens, err := EncodeText(prose, b)
	require.NoError(t, err)
	assert.Equal(t, 2, tokens.bytesPerToken)
	back, err := b.AppendText(nil, all(tokens))
	require.NoError(t, err)
	assert.Equal(t, EndOfText+string(prose)+EndOfText, string(back))
	of, err := UnigramBitsPerByte(t.Context(), tokens, tokens)
	require.NoError(t, err)
	plain := encoded(t, string(prose))
	ofBytes, err := UnigramBitsPerByte(t.Context(), plain, plain)
	require.NoError(t, err)
	assert.Less(t, of, ofBytes/2)
}

func BenchmarkBPE(b *testing.B) {
	files, err := GoSources(b.Context())
	require.NoError(b, err)
	_, sample, err := files.Split(0.1, 1)
	require.NoError(b, err)
	tok, err := Train(b.Context(), sample, 8192, TrainOptions{})
	require.NoError(b, err)
	var text []byte
	for p, err := range sample.readChunks(b.Context()) {
		require.NoError(b, err)
		text = append(text, p.data...)
	}
	ids := tok.Append(nil, text)
	b.Run("train 8192", func(b *testing.B) {
		b.SetBytes(sample.Bytes())
		for b.Loop() {
			_, err := Train(b.Context(), sample, 8192, TrainOptions{})
			require.NoError(b, err)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			ids = tok.Append(ids[:0], text)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			_, err := tok.AppendText(text[:0], ids)
			require.NoError(b, err)
		}
	})
}
