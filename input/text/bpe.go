package text

import (
	"math"
	"math/bits"
	"sync"
)

// EndOfText is the separator of tokenizers that [Train] makes, as files name it.
const EndOfText = "<|endoftext|>"

// BPE is a tokenizer by byte-level byte pair encoding: a text is cut into [Words], the bytes of
// each word are its first tokens, and neighbouring tokens are joined in the order in which joining
// them was learned. Any bytes can be encoded, and the bytes come back exactly. [Train] learns one
// from texts, and [ReadBPE] reads one in the form of Hugging Face's tokenizers.
//
// A text that has the characters of a special token, such as <|endoftext|>, is encoded as any
// other: special tokens come from the caller alone. A BPE is immutable, and any number of
// goroutines may use it.
type BPE struct {
	text      []string // of each token; "" for ids that are none
	special   []specialToken
	separator int32
	bytes     [256]int32 // the token of each byte
	merges    []merge    // in the order in which they were learned
	table     pairTable
	words     Words
	// ignoreMerges takes words that are tokens as they are, however they would be joined.
	ignoreMerges map[string]int32
	encoders     *sync.Pool
}

type specialToken struct {
	id      int32
	content string
}

// merge joins two tokens that stand next to each other.
type merge struct{ left, right, joined int32 }

// Vocabulary returns the number of tokens.
func (b *BPE) Vocabulary() int { return len(b.text) }

// Separator returns the id of the separator.
func (b *BPE) Separator() int32 { return b.separator }

// Token returns the bytes of a token as a string, and for a special token its name. It returns
// false if there is no such token.
func (b *BPE) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(b.text) || b.text[id] == "" {
		return "", false
	}
	return b.text[id], true
}

// AppendText appends the bytes of the tokens, and the names of special tokens.
func (b *BPE) AppendText(text []byte, ids []int32) ([]byte, error) {
	for i, id := range ids {
		s, ok := b.Token(id)
		if !ok {
			return text, noToken(id, i, len(b.text))
		}
		text = append(text, s...)
	}
	return text, nil
}

// Append appends the tokens of text: of Go sources, 50 to 60 MB/s on one core, and 12 to 15 MB/s
// where words are [Lines]. It keeps the tokens of words that it has met, in 1.3 MiB for each
// goroutine that encodes at the same time.
func (b *BPE) Append(ids []int32, text []byte) []int32 {
	e := b.encoders.Get().(*encoder)
	defer b.encoders.Put(e)
	next := patterns[b.words].next
	for i := 0; i < len(text); {
		end := next(text, i)
		ids = e.word(ids, text[i:end])
		i = end
	}
	return ids
}

// ready fills in what is derived from merges and texts.
func (b *BPE) ready() {
	b.table = newPairTable(len(b.merges))
	for rank, m := range b.merges {
		b.table.put(m.left, m.right, int32(rank))
	}
	b.encoders = &sync.Pool{New: func() any { return &encoder{b: b, known: make([]shortWord, 1<<knownBits)} }}
}

// shortWord is the tokens of a short word.
type shortWord struct {
	low, high uint64 // its bytes
	size, n   uint8  // of bytes, of tokens; size 0: none
	ids       [5]int32
}

// knownBits is the logarithm of the number of words that are kept, which is that of a few files.
const knownBits = 15

// encoder joins the bytes of words. One goroutine uses it at a time.
type encoder struct {
	b     *BPE
	known []shortWord
	ranks []int32
	queue heap[place]
	links []link
}

// word appends the tokens of a word.
func (e *encoder) word(ids []int32, word []byte) []int32 {
	if len(word) > 16 {
		return e.join(ids, word)
	}
	low, high := load(word)
	h := (low*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(high, 29)) * 0xbf58476d1ce4e5b9
	k := &e.known[h>>(64-knownBits)]
	if k.low == low && k.high == high && int(k.size) == len(word) {
		return append(ids, k.ids[:k.n]...)
	}
	before := len(ids)
	ids = e.join(ids, word)
	if n := len(ids) - before; n <= len(k.ids) {
		*k = shortWord{low: low, high: high, size: uint8(len(word)), n: uint8(n)}
		copy(k.ids[:], ids[before:])
	}
	return ids
}

// load returns the bytes of a word of at most 16, as numbers.
func load(word []byte) (low, high uint64) {
	for i, c := range word {
		if i < 8 {
			low |= uint64(c) << (8 * i)
		} else {
			high |= uint64(c) << (8 * (i - 8))
		}
	}
	return low, high
}

// short is the number of bytes up to which a word is searched for the next join from its beginning.
const short = 64

// join appends the tokens of a word: of all neighbours that can be joined, those whose join was
// learned first are joined, the leftmost of them first.
func (e *encoder) join(ids []int32, word []byte) []int32 {
	if id, ok := e.b.ignoreMerges[string(word)]; ok {
		return append(ids, id)
	}
	before := len(ids)
	for _, c := range word {
		ids = append(ids, e.b.bytes[c])
	}
	if len(word) > short {
		return append(ids[:before], e.joinLong(ids[before:])...)
	}
	tokens, ranks := ids[before:], e.ranks[:0]
	for i := range len(tokens) - 1 {
		ranks = append(ranks, e.b.table.get(tokens[i], tokens[i+1]))
	}
	e.ranks = ranks
	for {
		best, at := int32(math.MaxInt32), 0
		for i, rank := range ranks {
			if rank < best {
				best, at = rank, i
			}
		}
		if best == math.MaxInt32 {
			return ids[:before+len(tokens)]
		}
		tokens[at] = e.b.merges[best].joined
		tokens = append(tokens[:at+1], tokens[at+2:]...)
		ranks = append(ranks[:at], ranks[at+1:]...)
		if at > 0 {
			ranks[at-1] = e.b.table.get(tokens[at-1], tokens[at])
		}
		if at < len(ranks) {
			ranks[at] = e.b.table.get(tokens[at], tokens[at+1])
		}
	}
}

// link is a token of a long word, with its neighbours.
type link struct {
	id         int32
	prev, next int32
}

// place is where two tokens can be joined: the number of the merge, and of the left one's link.
type place uint64

func (p place) before(o place) bool { return p < o }

// joinLong is join for long words, in time n log n: a word may be a whole file.
func (e *encoder) joinLong(tokens []int32) []int32 {
	links := e.links[:0]
	e.queue = e.queue[:0]
	for i, id := range tokens {
		links = append(links, link{id, int32(i - 1), int32(i + 1)})
	}
	links[len(links)-1].next = -1
	propose := func(i int32) {
		if i < 0 || links[i].next < 0 {
			return
		}
		if rank := e.b.table.get(links[i].id, links[links[i].next].id); rank != math.MaxInt32 {
			e.queue.push(place(rank)<<32 | place(i))
		}
	}
	for i := range tokens {
		propose(int32(i))
	}
	for len(e.queue) > 0 {
		top := e.queue.pop()
		i := int32(uint32(top))
		m := e.b.merges[top>>32]
		l := &links[i]
		if l.id != m.left || l.next < 0 || links[l.next].id != m.right {
			continue // one of the two has been joined since
		}
		gone := l.next
		l.id, l.next = m.joined, links[gone].next
		links[gone].id = -1
		if l.next >= 0 {
			links[l.next].prev = i
		}
		propose(l.prev)
		propose(i)
	}
	e.links = links[:0]
	out := tokens[:0]
	for i := int32(0); i >= 0; i = links[i].next {
		out = append(out, links[i].id)
	}
	return out
}

// pairTable finds the number of a merge by its two tokens.
type pairTable struct {
	keys  []uint64 // one more than the pair, so that 0 is empty
	ranks []int32
	shift int
}

func newPairTable(n int) pairTable {
	size := bits.Len(uint(2*n + 1))
	return pairTable{keys: make([]uint64, 1<<size), ranks: make([]int32, 1<<size), shift: 64 - size}
}

func (t *pairTable) put(left, right, rank int32) {
	key := uint64(left)<<32 | uint64(right) + 1
	i := key * 0x9e3779b97f4a7c15 >> t.shift
	for t.keys[i] != 0 {
		i = (i + 1) & uint64(len(t.keys)-1)
	}
	t.keys[i], t.ranks[i] = key, rank
}

// get returns the number of the merge, or the greatest number if there is none.
func (t *pairTable) get(left, right int32) int32 {
	key := uint64(left)<<32 | uint64(right) + 1
	for i := key * 0x9e3779b97f4a7c15 >> t.shift; t.keys[i] != 0; i = (i + 1) & uint64(len(t.keys)-1) {
		if t.keys[i] == key {
			return t.ranks[i]
		}
	}
	return math.MaxInt32
}
