package text

import (
	"context"
	"fmt"
	"math"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// TrainOptions configures [Train]. The zero value splits words like GPT-2.
type TrainOptions struct {
	Pattern SplitPattern
}

// Train learns a byte-level BPE from texts. It has exactly vocabulary tokens: the separator
// [EndOfText], which is token 0, the 256 bytes, and one token for each merge. Train repeatedly
// merges the pair of tokens that is most often adjacent within words. Of equally frequent pairs it
// merges the one with the smaller ids. The result depends only on the texts and the options, and
// equals the result of Hugging Face's BpeTrainer with the same settings.
//
// Learning 32,000 tokens from 64 MB of Go takes 2.5 seconds on one core, and nine times as long
// with [Lines]. The memory grows with the number of different words. For large corpora, a selection
// of the texts by [Files.Sample] is sufficient. If vocabulary is too small for the bytes or too
// large for the texts, the error is a ValueError with the possible range.
func Train(ctx context.Context, files Files, vocabulary int, opts TrainOptions) (*BPE, error) {
	words, err := newWordCounts(vocabulary, opts)
	if err != nil {
		return nil, err
	}
	if files.Len() == 0 {
		return nil, valueError("train", "list some files", "there are no texts")
	}
	for p, err := range files.readChunks(ctx) {
		if err != nil {
			return nil, wrapError("train", "", err)
		}
		words.addWords(p.data)
	}
	return trainBPE(ctx, words, vocabulary)
}

// TrainText is [Train] for one text in memory.
func TrainText(ctx context.Context, text []byte, vocabulary int, opts TrainOptions) (*BPE, error) {
	words, err := newWordCounts(vocabulary, opts)
	if err != nil {
		return nil, err
	}
	words.addWords(text)
	return trainBPE(ctx, words, vocabulary)
}

// numBaseTokens is the number of tokens that are not the result of a merge: the separator and 256
// bytes.
const numBaseTokens = 257

type wordCounts struct {
	pattern SplitPattern
	indices map[string]int32
	words   []string
	counts  []int64
}

func newWordCounts(vocabulary int, opts TrainOptions) (*wordCounts, error) {
	if vocabulary < numBaseTokens {
		return nil, valueError("train", fmt.Sprintf("give at least %d: a separator and the bytes", numBaseTokens),
			"a vocabulary of %d tokens", vocabulary)
	}
	if vocabulary > math.MaxInt32 {
		return nil, valueError("train", fmt.Sprintf("give at most %d: ids are int32", math.MaxInt32),
			"a vocabulary of %d tokens", vocabulary)
	}
	if int(opts.Pattern) >= len(patterns) {
		return nil, valueError("train", "use GPT2, Llama3, Qwen2, Lines or NoSplit", "unknown pattern %v", opts.Pattern)
	}
	return &wordCounts{pattern: opts.Pattern, indices: map[string]int32{}}, nil
}

func (w *wordCounts) addWords(text []byte) {
	next := patterns[w.pattern].wordEnd
	for i := 0; i < len(text); {
		end := next(text, i)
		n, ok := w.indices[string(text[i:end])]
		if !ok {
			word := string(text[i:end])
			n = int32(len(w.words))
			w.indices[word] = n
			w.words, w.counts = append(w.words, word), append(w.counts, 0)
		}
		w.counts[n]++
		i = end
	}
}

// pairCount is the number of occurrences of a pair of adjacent tokens, and the words that contain it.
type pairCount struct {
	count int64
	words []int32 // sorted; may include words that no longer contain the pair
}

type trainer struct {
	words  [][]int32 // of each different word
	counts []int64   // number of occurrences of each word
	pairs  map[uint64]*pairCount
	heap   heap[pairPriority] // the most frequent pair is on top
}

func trainBPE(ctx context.Context, counts *wordCounts, vocabulary int) (*BPE, error) {
	b := newByteBPE()
	b.pattern = counts.pattern
	t := &trainer{counts: counts.counts, pairs: map[uint64]*pairCount{}}
	counts.indices = nil // its memory is needed
	total := 0
	for _, w := range counts.words {
		total += len(w)
	}
	flat := make([]int32, 0, total)
	for i, w := range counts.words {
		start := len(flat)
		for _, c := range []byte(w) {
			flat = append(flat, b.byteIDs[c])
		}
		word := flat[start:len(flat):len(flat)]
		t.words = append(t.words, word)
		for k := range len(word) - 1 {
			t.adjustPair(word[k], word[k+1], int32(i), t.counts[i])
		}
	}
	for key, p := range t.pairs {
		t.heap.push(pairPriority{p.count, key})
	}
	ids := map[string]int32{} // not of the vocabulary's size, which the texts may not give
	for id, s := range b.tokenText {
		ids[s] = int32(id)
	}
	for len(b.tokenText) < vocabulary {
		if err := ctx.Err(); err != nil {
			return nil, wrapError("train", "", err)
		}
		left, right, ok := t.mostCommonPair()
		if !ok {
			return nil, &errkind.Fault{Op: "text: train", Class: errkind.ValueError,
				Reason: fmt.Sprintf("the texts give %d tokens, and %d are asked for", len(b.tokenText), vocabulary),
				Hint:   fmt.Sprintf("give more text, or a vocabulary of at most %d", len(b.tokenText))}
		}
		// Two ways to the same bytes are one token.
		joined := b.tokenText[left] + b.tokenText[right]
		id, ok := ids[joined]
		if !ok {
			id = int32(len(b.tokenText))
			b.tokenText, ids[joined] = append(b.tokenText, joined), id
		}
		b.merges = append(b.merges, merge{left, right, id})
		t.mergePair(left, right, id)
	}
	b.idsByName = make(map[string]int32, len(b.tokenText))
	for id, text := range b.tokenText {
		b.idsByName[bytesToVisible(text)] = int32(id)
	}
	return b, b.buildTables()
}

// newByteBPE returns a BPE without merges, which contains only the separator and the bytes.
func newByteBPE() *BPE {
	b := &BPE{tokenText: []string{EndOfText}, addedTokens: []addedToken{{content: EndOfText, special: true}},
		unknownID: NoToken}
	for i, c := range byteOrder {
		b.byteIDs[c] = int32(i + 1)
		b.tokenText = append(b.tokenText, string([]byte{c}))
	}
	return b
}

// mostCommonPair returns the most frequent pair. It updates outdated counts in the heap.
func (t *trainer) mostCommonPair() (left, right int32, ok bool) {
	for len(t.heap) > 0 {
		top := t.heap.pop()
		p := t.pairs[top.pair]
		if p == nil || p.count <= 0 {
			delete(t.pairs, top.pair)
			continue
		}
		if p.count != top.count {
			t.heap.push(pairPriority{p.count, top.pair})
			continue
		}
		return int32(top.pair >> 32), int32(uint32(top.pair)), true
	}
	return 0, 0, false
}

// adjustPair adds delta to the count of a pair. word is the index of a word that contains the pair.
func (t *trainer) adjustPair(left, right, word int32, delta int64) {
	key := uint64(left)<<32 | uint64(right)
	p := t.pairs[key]
	if p == nil {
		p = &pairCount{}
		t.pairs[key] = p
	}
	p.count += delta
	if delta > 0 && (len(p.words) == 0 || p.words[len(p.words)-1] != word) {
		p.words = append(p.words, word)
	}
}

// mergePair replaces the pair of left and right with the token id in all words.
func (t *trainer) mergePair(left, right, id int32) {
	key := uint64(left)<<32 | uint64(right)
	in := t.pairs[key].words
	t.pairs[key].words = nil
	grown := map[uint64]bool{}
	adjust := func(a, b, word int32, delta int64) {
		t.adjustPair(a, b, word, delta)
		if delta > 0 {
			grown[uint64(a)<<32|uint64(b)] = true
		}
	}
	for _, w := range in {
		word, times := t.words[w], t.counts[w]
		end := 0
		for i := 0; i < len(word); i++ {
			if i+1 == len(word) || word[i] != left || word[i+1] != right {
				word[end] = word[i]
				end++
				continue
			}
			if end > 0 {
				adjust(word[end-1], left, w, -times)
				adjust(word[end-1], id, w, times)
			}
			if i+2 < len(word) {
				adjust(right, word[i+2], w, -times)
				adjust(id, word[i+2], w, times)
			}
			word[end] = id
			end++
			i++
		}
		t.words[w] = word[:end]
	}
	delete(t.pairs, key)
	for key := range grown {
		if p := t.pairs[key]; p != nil && p.count > 0 {
			t.heap.push(pairPriority{p.count, key})
		}
	}
}

// pairPriority is a pair in the heap, with its count at the time when it was pushed.
type pairPriority struct {
	count int64
	pair  uint64
}

func (r pairPriority) less(o pairPriority) bool {
	return r.count > o.count || r.count == o.count && r.pair < o.pair
}
