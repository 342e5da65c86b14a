package text

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// StandardLibrary returns the subset of [GoSources] that belongs to the standard library, without
// the go command and without tests. For Go 1.26 these are 26 MB in 2,900 files.
func StandardLibrary(ctx context.Context) (Files, error) {
	files, err := GoSources(ctx)
	return files.Filter(func(name string) bool {
		return !strings.HasPrefix(name, "cmd/") && !strings.HasSuffix(name, "_test.go")
	}), err
}

// Filter returns the texts for whose names, as in [Files.Names], keep returns true.
func (f Files) Filter(keep func(name string) bool) Files {
	return Files{slices.DeleteFunc(slices.Clone(f.texts), func(t textRange) bool { return !keep(t.name) })}
}

// Corpus contains training tokens and held-out tokens for a language model, and two baseline
// figures.
type Corpus struct {
	Tokenizer         Tokenizer
	Training, HeldOut *Tokens
	// Unigram and Gzip are the results of the functions [UnigramBitsPerByte] and [GzipBitsPerByte]
	// for the held-out texts, in bits per byte.
	Unigram, Gzip float64
}

// maxTrainBytes is the maximum number of bytes from which a BPE is learned. More bytes hardly change
// the tokens.
const maxTrainBytes = 8 << 20

// CorpusOptions configures [NewCorpus]. HeldOut has no default.
type CorpusOptions struct {
	// Vocabulary is the number of tokens. With 256, each byte is a token. With more, a BPE is
	// learned from the training part, or from 8 MiB of it if it is larger. 0 is 256.
	Vocabulary int
	// Pattern specifies how the BPE splits texts into words.
	Pattern SplitPattern
	// HeldOut is the share of the bytes that is held out, between 0 and 1, and Seed is the seed of
	// the selection.
	HeldOut float64
	Seed    uint64
	// Progress, if not nil, is called with a line of text at the start of each stage.
	Progress func(line string)
}

func (o *CorpusOptions) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// LoadCorpus calls [NewCorpus] with the text of a file, or with the sources of Go's standard
// library if path is empty.
func LoadCorpus(ctx context.Context, path string, o CorpusOptions) (*Corpus, error) {
	var files Files
	var err error
	if path == "" {
		o.progress("reading the sources of Go's standard library")
		files, err = StandardLibrary(ctx)
	} else {
		files, err = SingleFile(path)
	}
	if err != nil {
		return nil, err
	}
	return NewCorpus(ctx, files, o)
}

// NewCorpus divides the texts with [Files.Split] and returns the tokens of both parts. The
// result depends only on the texts and the options. Errors are those of [Files.Split], [Train] and
// [Encode].
func NewCorpus(ctx context.Context, files Files, o CorpusOptions) (*Corpus, error) {
	training, heldOut, err := files.Split(o.HeldOut, o.Seed)
	if err != nil {
		return nil, err
	}
	c := &Corpus{Tokenizer: Bytes()}
	if o.Vocabulary != 0 && o.Vocabulary != c.Tokenizer.Vocabulary() {
		part := training
		if part.Bytes() > maxTrainBytes {
			if part, err = part.Sample(maxTrainBytes, o.Seed); err != nil {
				return nil, err
			}
		}
		o.progress("learning %d tokens from %.1f MB of text", o.Vocabulary, float64(part.Bytes())/1e6)
		if c.Tokenizer, err = Train(ctx, part, o.Vocabulary, TrainOptions{Pattern: o.Pattern}); err != nil {
			return nil, err
		}
	}
	o.progress("writing %.1f MB of text as tokens", float64(training.Bytes()+heldOut.Bytes())/1e6)
	if c.Training, err = Encode(ctx, training, c.Tokenizer); err != nil {
		return nil, err
	}
	if c.HeldOut, err = Encode(ctx, heldOut, c.Tokenizer); err != nil {
		return nil, err
	}
	if c.Unigram, err = UnigramBitsPerByte(ctx, c.Training, c.HeldOut); err != nil {
		return nil, err
	}
	c.Gzip, err = GzipBitsPerByte(ctx, heldOut)
	return c, err
}
