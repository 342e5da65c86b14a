package text

import (
	"context"
	"fmt"
	"math"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// TrainOptions says how [Train] learns. The zero value cuts words as GPT-2 does.
type TrainOptions struct {
	Words Words
}

// Train learns a byte-level BPE of exactly the given number of tokens from texts: the separator
// [EndOfText], which is token 0, the 256 bytes, and tokens that each join two others. It joins the
// two tokens that most often stand next to each other within words, again and again; of pairs that
// are equally common, the one with the smaller ids. The result depends on the texts alone, and is
// that of Hugging Face's BpeTrainer with the same settings.
//
// 32,000 tokens of 64 MB of Go take 2.5 seconds on one core, and nine times as much with Lines. The
// memory grows with the number of different words. A part of the texts, by [Files.Take], serves as
// well as all of them if there are many. The error of a vocabulary that is too small for the bytes,
// or too large for the texts, is a ValueError that says what is possible.
func Train(ctx context.Context, files Files, vocabulary int, opts TrainOptions) (*BPE, error) {
	words, err := newWordCounts(vocabulary, opts)
	if err != nil {
		return nil, err
	}
	if files.Len() == 0 {
		return nil, wrong("train", "list some files", "there are no texts")
	}
	for p, err := range files.pieces(ctx) {
		if err != nil {
			return nil, within("train", "", err)
		}
		words.add(p.data)
	}
	return train(ctx, words, vocabulary)
}

// TrainText is [Train] on one text that is in memory.
func TrainText(ctx context.Context, text []byte, vocabulary int, opts TrainOptions) (*BPE, error) {
	words, err := newWordCounts(vocabulary, opts)
	if err != nil {
		return nil, err
	}
	words.add(text)
	return train(ctx, words, vocabulary)
}

// firstMerge is the number of tokens that no merge makes.
const firstMerge = 257

// wordCounts counts the words of texts.
type wordCounts struct {
	cut    Words
	index  map[string]int32
	words  []string
	counts []int64
}

func newWordCounts(vocabulary int, opts TrainOptions) (*wordCounts, error) {
	if vocabulary < firstMerge {
		return nil, wrong("train", fmt.Sprintf("give at least %d: a separator and the bytes", firstMerge), "a vocabulary of %d tokens", vocabulary)
	}
	if vocabulary > math.MaxInt32 {
		return nil, wrong("train", fmt.Sprintf("give at most %d: ids are int32", math.MaxInt32), "a vocabulary of %d tokens", vocabulary)
	}
	if int(opts.Words) >= len(patterns) {
		return nil, wrong("train", "use GPT2, Llama3, Qwen2, Lines or NoCut", "unknown words %v", opts.Words)
	}
	return &wordCounts{cut: opts.Words, index: map[string]int32{}}, nil
}

func (w *wordCounts) add(text []byte) {
	next := patterns[w.cut].next
	for i := 0; i < len(text); {
		end := next(text, i)
		n, ok := w.index[string(text[i:end])]
		if !ok {
			word := string(text[i:end])
			n = int32(len(w.words))
			w.index[word] = n
			w.words, w.counts = append(w.words, word), append(w.counts, 0)
		}
		w.counts[n]++
		i = end
	}
}

// pairCount is how often two tokens stand next to each other, and in which words they were seen to.
type pairCount struct {
	count int64
	words []int32 // in the order of their numbers, some perhaps in vain
}

// trainer joins tokens of words.
type trainer struct {
	words [][]int32 // of each different word
	times []int64   // how often the word is there
	pairs map[uint64]*pairCount
	heap  heap[heapPair] // the pair to join first on top
}

func train(ctx context.Context, counts *wordCounts, vocabulary int) (*BPE, error) {
	b := startBPE()
	b.words = counts.cut
	t := &trainer{times: counts.counts, pairs: map[uint64]*pairCount{}}
	counts.index = nil // its memory is needed
	total := 0
	for _, w := range counts.words {
		total += len(w)
	}
	flat := make([]int32, 0, total)
	for i, w := range counts.words {
		from := len(flat)
		for _, c := range []byte(w) {
			flat = append(flat, b.bytes[c])
		}
		word := flat[from:len(flat):len(flat)]
		t.words = append(t.words, word)
		for k := range len(word) - 1 {
			t.change(word[k], word[k+1], int32(i), t.times[i])
		}
	}
	for key, p := range t.pairs {
		t.heap.push(heapPair{p.count, key})
	}
	ids := map[string]int32{} // not of the vocabulary's size, which the texts may not give
	for id, s := range b.text {
		ids[s] = int32(id)
	}
	for len(b.text) < vocabulary {
		if err := ctx.Err(); err != nil {
			return nil, within("train", "", err)
		}
		left, right, ok := t.next()
		if !ok {
			return nil, &errkind.Fault{Op: "text: train", Class: errkind.ValueError,
				Reason: fmt.Sprintf("the texts give %d tokens, and %d are asked for", len(b.text), vocabulary),
				Hint:   fmt.Sprintf("give more text, or a vocabulary of at most %d", len(b.text))}
		}
		// Two ways to the same bytes are one token.
		joined := b.text[left] + b.text[right]
		id, ok := ids[joined]
		if !ok {
			id = int32(len(b.text))
			b.text, ids[joined] = append(b.text, joined), id
		}
		b.merges = append(b.merges, merge{left, right, id})
		t.join(left, right, id)
	}
	b.ids = make(map[string]int32, len(b.text))
	for id, text := range b.text {
		b.ids[shown(text)] = int32(id)
	}
	return b, b.prepare()
}

// startBPE returns a BPE with the tokens that no merge makes.
func startBPE() *BPE {
	b := &BPE{text: []string{EndOfText}, added: []added{{content: EndOfText, special: true}}, unknown: NoToken}
	for i, c := range byteOrder {
		b.bytes[c] = int32(i + 1)
		b.text = append(b.text, string([]byte{c}))
	}
	return b
}

// next returns the pair to join: the most common one. What the heap has of pairs that became rarer
// since is put right here.
func (t *trainer) next() (left, right int32, ok bool) {
	for len(t.heap) > 0 {
		top := t.heap.pop()
		p := t.pairs[top.pair]
		if p == nil || p.count <= 0 {
			delete(t.pairs, top.pair)
			continue
		}
		if p.count != top.count {
			t.heap.push(heapPair{p.count, top.pair})
			continue
		}
		return int32(top.pair >> 32), int32(uint32(top.pair)), true
	}
	return 0, 0, false
}

// change counts a pair in a word.
func (t *trainer) change(left, right, word int32, by int64) {
	key := uint64(left)<<32 | uint64(right)
	p := t.pairs[key]
	if p == nil {
		p = &pairCount{}
		t.pairs[key] = p
	}
	p.count += by
	if by > 0 && (len(p.words) == 0 || p.words[len(p.words)-1] != word) {
		p.words = append(p.words, word)
	}
}

// join replaces each pair of left and right by a token, in all words.
func (t *trainer) join(left, right, id int32) {
	key := uint64(left)<<32 | uint64(right)
	in := t.pairs[key].words
	t.pairs[key].words = nil
	grown := map[uint64]bool{}
	more := func(a, b, word int32, by int64) {
		t.change(a, b, word, by)
		if by > 0 {
			grown[uint64(a)<<32|uint64(b)] = true
		}
	}
	for _, w := range in {
		word, times := t.words[w], t.times[w]
		to := 0
		for i := 0; i < len(word); i++ {
			if i+1 == len(word) || word[i] != left || word[i+1] != right {
				word[to] = word[i]
				to++
				continue
			}
			if to > 0 {
				more(word[to-1], left, w, -times)
				more(word[to-1], id, w, times)
			}
			if i+2 < len(word) {
				more(right, word[i+2], w, -times)
				more(id, word[i+2], w, times)
			}
			word[to] = id
			to++
			i++
		}
		t.words[w] = word[:to]
	}
	delete(t.pairs, key)
	for key := range grown {
		if p := t.pairs[key]; p != nil && p.count > 0 {
			t.heap.push(heapPair{p.count, key})
		}
	}
}

// heapPair is a pair in the heap, with its count when it was put there.
type heapPair struct {
	count int64
	pair  uint64
}

func (r heapPair) before(o heapPair) bool {
	return r.count > o.count || r.count == o.count && r.pair < o.pair
}
