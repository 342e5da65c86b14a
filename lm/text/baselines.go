package text

import (
	"compress/gzip"
	"context"
	"math"
)

// BitsPerByte converts the loss of a model to bits per byte of the texts. nats is the sum of the
// losses of all targets: the negative natural logarithms of their predicted probabilities. To
// convert a mean loss, multiply it by [Tokens.Targets]. Separators are predicted and count as
// targets, but not as bytes. If the texts are empty, the result is NaN.
func (t *Tokens) BitsPerByte(nats float64) float64 {
	if t.numBytes == 0 {
		return math.NaN()
	}
	return nats / math.Ln2 / float64(t.numBytes)
}

// forEachTarget calls f with each predicted token and the preceding token.
func (t *Tokens) forEachTarget(ctx context.Context, f func(previous, token int32)) error {
	ids := make([]int32, 1<<16)
	previous := int32(-1)
	for from := 0; from < t.numTokens; from += len(ids) {
		if err := ctx.Err(); err != nil {
			return wrapError("count", "", err)
		}
		for _, id := range ids[:t.Read(ids, from)] {
			if previous >= 0 {
				f(previous, id)
			}
			previous = id
		}
	}
	return nil
}

// checkCounts returns an error if the vocabularies differ or if the held-out texts are empty.
func checkCounts(training, heldOut *Tokens) error {
	if training.vocabulary != heldOut.vocabulary || training.separator != heldOut.separator {
		return valueError("count", "encode both with one tokenizer",
			"tokens of a vocabulary of %d, and held-out tokens of one of %d", training.vocabulary, heldOut.vocabulary)
	}
	if heldOut.numBytes == 0 {
		return valueError("count", "hold out texts that are not empty", "the held-out texts have no bytes")
	}
	return nil
}

// countUnigrams returns the number of occurrences of each token in the training targets, plus one.
func countUnigrams(ctx context.Context, training, heldOut *Tokens) (counts []float64, total float64, err error) {
	if err := checkCounts(training, heldOut); err != nil {
		return nil, 0, err
	}
	counts = make([]float64, training.vocabulary)
	for i := range counts {
		counts[i] = 1
	}
	err = training.forEachTarget(ctx, func(_, id int32) { counts[id]++ })
	return counts, float64(training.vocabulary + training.Targets()), err
}

// UnigramBitsPerByte returns the bits per byte of the held-out texts for a model that uses only the
// token frequencies in training. The probability of each token is (count + 1) / (tokens + vocabulary).
func UnigramBitsPerByte(ctx context.Context, training, heldOut *Tokens) (float64, error) {
	counts, total, err := countUnigrams(ctx, training, heldOut)
	if err != nil {
		return 0, err
	}
	nats := 0.0
	for i, c := range counts {
		counts[i] = math.Log(total / c)
	}
	err = heldOut.forEachTarget(ctx, func(_, id int32) { nats += counts[id] })
	return heldOut.BitsPerByte(nats), err
}

// bigramPrior is the weight of the unigram distribution in the bigram counts, in tokens.
const bigramPrior = 8

// BigramBitsPerByte returns the bits per byte of the held-out texts for a model that uses only the
// frequencies of token pairs in training. The probability of token b after token a is (count(a, b)
// + 8 u(b)) / (count(a) + 8), where u is the probability in [UnigramBitsPerByte].
func BigramBitsPerByte(ctx context.Context, training, heldOut *Tokens) (float64, error) {
	counts, total, err := countUnigrams(ctx, training, heldOut)
	if err != nil {
		return 0, err
	}
	key := func(a, b int32) uint64 { return uint64(a)<<32 | uint64(b) }
	pairs := map[uint64]int64{} // pairs of the held-out texts, with their counts in training
	if err := heldOut.forEachTarget(ctx, func(a, b int32) { pairs[key(a, b)] = 0 }); err != nil {
		return 0, err
	}
	after := make([]float64, training.vocabulary)
	count := func(a, b int32) {
		after[a]++
		if n, ok := pairs[key(a, b)]; ok {
			pairs[key(a, b)] = n + 1
		}
	}
	var dense []int64
	if v := training.vocabulary; v <= 1<<10 {
		dense = make([]int64, v*v)
		count = func(a, b int32) { after[a]++; dense[int(a)*v+int(b)]++ }
	}
	if err := training.forEachTarget(ctx, count); err != nil {
		return 0, err
	}
	nats := 0.0
	err = heldOut.forEachTarget(ctx, func(a, b int32) {
		n := pairs[key(a, b)]
		if dense != nil {
			n = dense[int(a)*training.vocabulary+int(b)]
		}
		nats += math.Log((after[a] + bigramPrior) / (float64(n) + bigramPrior*counts[b]/total))
	})
	return heldOut.BitsPerByte(nats), err
}

// GzipBitsPerByte returns the compressed size of the texts in bits per byte. It concatenates the
// texts in order and compresses them with gzip at level 9.
func GzipBitsPerByte(ctx context.Context, files Files) (float64, error) {
	if files.Bytes() == 0 {
		return 0, valueError("gzip", "list files that are not empty", "the texts have no bytes")
	}
	var size byteCounter
	w, err := gzip.NewWriterLevel(&size, gzip.BestCompression)
	if err != nil {
		return 0, wrapError("gzip", "", err)
	}
	n := int64(0)
	for p, err := range files.readChunks(ctx) {
		if err != nil {
			return 0, wrapError("gzip", "", err)
		}
		n += int64(len(p.data))
		if _, err := w.Write(p.data); err != nil {
			return 0, wrapError("gzip", "", err)
		}
	}
	if err := w.Close(); err != nil {
		return 0, wrapError("gzip", "", err)
	}
	return 8 * float64(size) / float64(n), nil
}

type byteCounter int64

func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}
