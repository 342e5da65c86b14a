package text

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// StandardLibrary returns the [GoSources] of the standard library, without tests and the go
// command. For Go 1.26 these are 26 MB in 2,900 files.
func StandardLibrary(ctx context.Context) (Files, error) {
	files, err := GoSources(ctx)
	return files.Filter(func(name string) bool {
		return !strings.HasPrefix(name, "cmd/") && !strings.HasSuffix(name, "_test.go")
	}), err
}

// Filter returns the texts for which keep returns true. keep receives a name as in [Files.Names].
func (f Files) Filter(keep func(name string) bool) Files {
	return Files{slices.DeleteFunc(slices.Clone(f.texts), func(t textRange) bool { return !keep(t.name) })}
}

// Corpus contains the training and held-out tokens for a language model, and the results of two
// baselines.
type Corpus struct {
	Tokenizer         Tokenizer
	Training, HeldOut *Tokens
	// Unigram and Gzip are the results of the functions [UnigramBitsPerByte] and [GzipBitsPerByte]
	// for the held-out texts, in bits per byte.
	Unigram, Gzip float64
}

// maxTrainBytes is the maximum number of bytes from which a BPE is learned. More bytes hardly
// change the tokens.
const maxTrainBytes = 8 << 20

// CorpusOptions configures [NewCorpus]. HeldOut has no default.
type CorpusOptions struct {
	// Vocabulary is the number of tokens. With 256, each byte is a token. With more, a BPE is
	// learned from at most 8 MiB of the training texts. 0 means 256.
	Vocabulary int
	// Pattern specifies how the BPE splits texts into words.
	Pattern SplitPattern
	// HeldOut is the fraction of the bytes that is held out, between 0 and 1. Seed is the seed of
	// the random selection.
	HeldOut float64
	Seed    uint64
	// Progress is called with a line of text at the start of each stage. It may be nil.
	Progress func(line string)
}

func (o *CorpusOptions) logProgress(format string, args ...any) {
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
		o.logProgress("reading the sources of Go's standard library")
		files, err = StandardLibrary(ctx)
	} else {
		files, err = SingleFile(path)
	}
	if err != nil {
		return nil, err
	}
	return NewCorpus(ctx, files, o)
}

// NewCorpus divides the texts into training and held-out texts with [Files.Split], and encodes
// both. The result depends only on the texts and the options. Errors are those of [Files.Split],
// [Train] and [Encode].
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
		o.logProgress("learning %d tokens from %.1f MB of text", o.Vocabulary, float64(part.Bytes())/1e6)
		if c.Tokenizer, err = Train(ctx, part, o.Vocabulary, TrainOptions{Pattern: o.Pattern}); err != nil {
			return nil, err
		}
	}
	o.logProgress("writing %.1f MB of text as tokens", float64(training.Bytes()+heldOut.Bytes())/1e6)
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
