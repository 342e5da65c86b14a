package text

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/lm/text/internal/regex"
)

// EndOfText is the name of the separator of tokenizers that [Train] returns.
const EndOfText = "<|endoftext|>"

// NoToken is the id that [BPE.Append] returns for a byte that has no token. The vocabulary of a
// file may omit bytes, and often omits the 13 bytes that UTF-8 never uses. [Encode] and
// [BPE.AppendText] return an error for NoToken, so no byte is dropped silently.
const NoToken int32 = -1

// BPE is a tokenizer that uses byte-level byte pair encoding. It splits a text into words, as
// [SplitPattern] describes. Each word is first encoded as its bytes. Then adjacent tokens are
// merged, in the order in which the merges were learned. [Train] learns a BPE from texts, and
// [ReadBPE] reads one from a file of Hugging Face's tokenizers.
//
// Any bytes can be encoded and decoded without loss, with three exceptions that depend on the file.
// It may normalize texts to Unicode's form NFC, omit bytes, or strip white space next to added
// tokens. Added tokens, such as <|endoftext|>, are found in texts before the texts are split. See
// [BPE.SpecialAsText] for texts that must not contain special tokens.
//
// A BPE is immutable and safe for concurrent use.
type BPE struct {
	tokenText   []string         // bytes of each token; "" for ids without a token
	idsByName   map[string]int32 // vocabulary; a name is the token's bytes as visible characters
	addedTokens []addedToken
	separator   int32
	merges      []merge // in the order in which they were learned
	pattern     SplitPattern
	// splitSteps implement preTokenizer if it is not one of the known split patterns.
	splitSteps    []splitStep
	preTokenizer  *preTokenizerJSON
	normalizesNFC bool
	ignoreMerges  bool // encode a word that is in the vocabulary as one token, even if merges give another result
	specialAsText bool
	unknownID     int32 // token for bytes without a token, or NoToken
	unknownName   string
	fuseUnknown   bool // encode adjacent bytes without a token as one unknown token

	// buildTables derives the following fields from the fields above.
	byteIDs                       [256]int32 // the token of each byte
	lacksToken                    [256]bool  // whether each byte has no token
	wholeWords                    map[string]int32
	mergeRanks                    pairTable
	exactTokens, normalizedTokens tokenTrie // added tokens to find before and after normalization
	encoders                      *sync.Pool
}

// merge replaces two adjacent tokens with one.
type merge struct{ left, right, joined int32 }

// Vocabulary returns the number of tokens.
func (b *BPE) Vocabulary() int { return len(b.tokenText) }

// Separator returns the id of the separator.
func (b *BPE) Separator() int32 { return b.separator }

// Token returns the bytes of a token, or the content of an added token, as a string. It returns
// false if there is no such token.
func (b *BPE) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(b.tokenText) || b.tokenText[id] == "" {
		return "", false
	}
	return b.tokenText[id], true
}

// AppendText appends the bytes of the tokens, including the contents of added tokens.
func (b *BPE) AppendText(text []byte, ids []int32) ([]byte, error) {
	for i, id := range ids {
		s, ok := b.Token(id)
		if !ok {
			return text, unknownTokenError(id, i, len(b.tokenText))
		}
		text = append(text, s...)
	}
	return text, nil
}

// SpecialAsText returns a tokenizer that encodes the names of special tokens in texts as ordinary
// text, like Hugging Face's tokenizers with encode_special_tokens=True. Use it for untrusted texts,
// such as documents or user prompts. Added tokens that are not special are still found.
func (b *BPE) SpecialAsText() *BPE {
	out := *b
	out.specialAsText = true
	_ = out.buildTables() // it returned nil for b, which has the same tokens
	return &out
}

// Append appends the tokens of text. Bytes that have no token become [NoToken].
//
// On one core it encodes 50 to 60 MB/s of Go sources, or 12 to 15 MB/s with [Lines]. Files with a
// pre-tokenizer that is not a [SplitPattern] are slower. Append caches the tokens of words in 1.3
// MiB per concurrent goroutine.
func (b *BPE) Append(ids []int32, text []byte) []int32 {
	e := b.encoders.Get().(*encoder)
	defer b.encoders.Put(e)
	if len(b.addedTokens) == 0 && !b.normalizesNFC {
		return e.encodeText(ids, text)
	}
	found := func(id int32) { ids = append(ids, id) }
	b.exactTokens.splitText(text, b.specialAsText, found, func(text []byte) {
		if b.normalizesNFC {
			text = normalizeNFC(text)
		}
		b.normalizedTokens.splitText(text, b.specialAsText, found, func(text []byte) { ids = e.encodeText(ids, text) })
	})
	return ids
}

// buildTables computes lookup tables from the vocabulary, the merges and the added tokens. It
// returns an error if two added tokens have the same normalized content.
func (b *BPE) buildTables() error {
	b.mergeRanks = newPairTable(len(b.merges))
	for rank, m := range b.merges {
		b.mergeRanks.insert(m.left, m.right, int32(rank))
	}
	for c := range 256 {
		id, ok := b.idsByName[string(byteToRune[c])]
		if b.lacksToken[c] = !ok; !ok {
			id = b.unknownID
		}
		b.byteIDs[c] = id
	}
	b.exactTokens, b.normalizedTokens = tokenTrie{}, tokenTrie{}
	special := map[string]bool{}
	for _, t := range b.addedTokens {
		m, pattern := &b.exactTokens, t.content
		if t.normalized {
			if m = &b.normalizedTokens; b.normalizesNFC {
				pattern = string(normalizeNFC([]byte(pattern)))
			}
		}
		if !m.addToken(pattern, t) {
			return tokenizerFileError("leave one of them out",
				"the added token %q and another one are equal after normalization", t.content)
		}
		special[t.content] = t.special
	}
	if b.ignoreMerges {
		b.wholeWords = make(map[string]int32, len(b.idsByName))
		for name, id := range b.idsByName {
			if bytes, ok := visibleToBytes(name); ok && !(b.specialAsText && special[name]) {
				b.wholeWords[bytes] = id
			}
		}
	}
	b.encoders = &sync.Pool{New: func() any { return &encoder{bpe: b, cache: make([]cachedWord, 1<<cacheBits)} }}
	return nil
}

// firstMissingByte returns the index of the first byte of text that has no token.
func (b *BPE) firstMissingByte(text []byte) (index int, found bool) {
	index = slices.IndexFunc(text, func(c byte) bool { return b.lacksToken[c] })
	return index, index >= 0
}

type cachedWord struct {
	low, high           uint64 // bytes of the word, packed by packWord
	numBytes, numTokens uint8  // 0 for an unused entry
	ids                 [5]int32
}

// cacheBits is the binary logarithm of the number of cached words.
const cacheBits = 15

// encoder encodes words. It is not safe for concurrent use.
type encoder struct {
	bpe   *BPE
	cache []cachedWord
	ranks []int32
	queue heap[mergeCandidate]
	links []wordToken
	regex regex.Matcher
}

// encodeText splits a text without added tokens into words and appends the tokens of each word.
func (e *encoder) encodeText(ids []int32, text []byte) []int32 {
	if e.bpe.preTokenizer != nil {
		splitWords(e.bpe.splitSteps, &e.regex, text, false, func(word []byte) { ids = e.encodeWord(ids, word) })
		return ids
	}
	next := patterns[e.bpe.pattern].wordEnd
	for i := 0; i < len(text); {
		end := next(text, i)
		ids = e.encodeWord(ids, text[i:end])
		i = end
	}
	return ids
}

func (e *encoder) encodeWord(ids []int32, word []byte) []int32 {
	if len(word) > 16 {
		return e.mergeWord(ids, word)
	}
	low, high := packWord(word)
	h := (low*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(high, 29)) * 0xbf58476d1ce4e5b9
	k := &e.cache[h>>(64-cacheBits)]
	if k.low == low && k.high == high && int(k.numBytes) == len(word) {
		return append(ids, k.ids[:k.numTokens]...)
	}
	numBefore := len(ids)
	ids = e.mergeWord(ids, word)
	if n := len(ids) - numBefore; n <= len(k.ids) {
		*k = cachedWord{low: low, high: high, numBytes: uint8(len(word)), numTokens: uint8(n)}
		copy(k.ids[:], ids[numBefore:])
	}
	return ids
}

// packWord packs a word of at most 16 bytes into two integers.
func packWord(word []byte) (low, high uint64) {
	for i, c := range word {
		if i < 8 {
			low |= uint64(c) << (8 * i)
		} else {
			high |= uint64(c) << (8 * (i - 8))
		}
	}
	return low, high
}

// maxShortWord is the maximum length, in bytes, of a word for which mergeWord searches all pairs of
// tokens. Longer words are passed to mergeLongWord.
const maxShortWord = 64

// mergeWord appends the tokens of a word. It repeatedly merges the pair of adjacent tokens whose
// merge was learned first. Of several equal pairs it merges the leftmost.
func (e *encoder) mergeWord(ids []int32, word []byte) []int32 {
	if id, ok := e.bpe.wholeWords[string(word)]; ok {
		return append(ids, id)
	}
	numBefore := len(ids)
	for i, c := range word {
		if e.bpe.fuseUnknown && i > 0 && e.bpe.lacksToken[c] && e.bpe.lacksToken[word[i-1]] {
			continue
		}
		ids = append(ids, e.bpe.byteIDs[c])
	}
	if len(word) > maxShortWord {
		return append(ids[:numBefore], e.mergeLongWord(ids[numBefore:])...)
	}
	tokens, ranks := ids[numBefore:], e.ranks[:0]
	for i := range len(tokens) - 1 {
		ranks = append(ranks, e.bpe.mergeRanks.lookup(tokens[i], tokens[i+1]))
	}
	e.ranks = ranks
	for {
		best, index := int32(math.MaxInt32), 0
		for i, rank := range ranks {
			if rank < best {
				best, index = rank, i
			}
		}
		if best == math.MaxInt32 {
			return ids[:numBefore+len(tokens)]
		}
		tokens[index] = e.bpe.merges[best].joined
		tokens = append(tokens[:index+1], tokens[index+2:]...)
		ranks = append(ranks[:index], ranks[index+1:]...)
		if index > 0 {
			ranks[index-1] = e.bpe.mergeRanks.lookup(tokens[index-1], tokens[index])
		}
		if index < len(ranks) {
			ranks[index] = e.bpe.mergeRanks.lookup(tokens[index], tokens[index+1])
		}
	}
}

// wordToken is a token of a long word in a doubly linked list.
type wordToken struct {
	id         int32
	prev, next int32
}

// mergeCandidate is a possible merge: its rank in the high bits, and the left token's index in the
// low bits.
type mergeCandidate uint64

func (p mergeCandidate) less(o mergeCandidate) bool { return p < o }

// mergeLongWord is a variant of mergeWord with time O(n log n), because a word may be an entire file.
func (e *encoder) mergeLongWord(tokens []int32) []int32 {
	links := e.links[:0]
	e.queue = e.queue[:0]
	for i, id := range tokens {
		links = append(links, wordToken{id, int32(i - 1), int32(i + 1)})
	}
	links[len(links)-1].next = -1
	propose := func(i int32) {
		if i < 0 || links[i].next < 0 {
			return
		}
		if rank := e.bpe.mergeRanks.lookup(links[i].id, links[links[i].next].id); rank != math.MaxInt32 {
			e.queue.push(mergeCandidate(rank)<<32 | mergeCandidate(i))
		}
	}
	for i := range tokens {
		propose(int32(i))
	}
	for len(e.queue) > 0 {
		top := e.queue.pop()
		i := int32(uint32(top))
		m := e.bpe.merges[top>>32]
		l := &links[i]
		if l.id != m.left || l.next < 0 || links[l.next].id != m.right {
			continue // one of the two has been joined since
		}
		right := l.next
		l.id, l.next = m.joined, links[right].next
		links[right].id = -1
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

// pairTable is a hash table from pairs of tokens to the ranks of their merges.
type pairTable struct {
	keys  []uint64 // the pair plus one; 0 marks an empty entry
	ranks []int32
	shift int
}

func newPairTable(n int) pairTable {
	size := bits.Len(uint(2*n + 1))
	return pairTable{keys: make([]uint64, 1<<size), ranks: make([]int32, 1<<size), shift: 64 - size}
}

func (t *pairTable) insert(left, right, rank int32) {
	key := uint64(left)<<32 | uint64(right) + 1
	i := key * 0x9e3779b97f4a7c15 >> t.shift
	for t.keys[i] != 0 {
		i = (i + 1) & uint64(len(t.keys)-1)
	}
	t.keys[i], t.ranks[i] = key, rank
}

// lookup returns the rank of a pair's merge, or math.MaxInt32 if there is none.
func (t *pairTable) lookup(left, right int32) int32 {
	key := uint64(left)<<32 | uint64(right) + 1
	for i := key * 0x9e3779b97f4a7c15 >> t.shift; t.keys[i] != 0; i = (i + 1) & uint64(len(t.keys)-1) {
		if t.keys[i] == key {
			return t.ranks[i]
		}
	}
	return math.MaxInt32
}
