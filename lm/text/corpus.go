package text

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// StandardLibrary returns the sources of Go's standard library, without the go command's and
// without tests: those of [GoSources] that importing programs are made of. For Go 1.26 these are 26
// MB in 2,900 files.
func StandardLibrary(ctx context.Context) (Files, error) {
	files, err := GoSources(ctx)
	return files.Select(func(name string) bool {
		return !strings.HasPrefix(name, "cmd/") && !strings.HasSuffix(name, "_test.go")
	}), err
}

// Select returns the texts whose names, as [Files.Names] gives them, keep accepts.
func (f Files) Select(keep func(name string) bool) Files {
	return Files{slices.DeleteFunc(slices.Clone(f.texts), func(t one) bool { return !keep(t.name) })}
}

// Corpus is texts as a language model needs them: tokens to train on, tokens that were set apart,
// and two figures to compare the model's with.
type Corpus struct {
	Words             Tokenizer
	Training, HeldOut *Tokens
	// Unigram and Gzip are what the functions of these names return for the held-out texts, in bits
	// per byte.
	Unigram, Gzip float64
}

// learnedOf is how many bytes of texts a BPE is learned from: more give hardly other tokens.
const learnedOf = 8 << 20

// CorpusOptions say what [PrepareFiles] makes of texts. HeldOut has no default.
type CorpusOptions struct {
	// Vocabulary is the number of tokens: 256 makes each byte a token, and more learn a BPE from the
	// training part, or from 8 MB of it if it is larger. 0 is 256.
	Vocabulary int
	// Words say how the BPE cuts texts.
	Words Words
	// HeldOut is the share of the texts' bytes that is set apart, between 0 and 1, and Seed chooses
	// the texts.
	HeldOut float64
	Seed    uint64
	// Say is called with a line of text as each part of the work begins; nil is not.
	Say func(line string)
}

func (o *CorpusOptions) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(fmt.Sprintf(format, args...))
	}
}

// Prepare reads the text of a file, or the sources of Go's standard library if path is empty, and
// prepares it; see [PrepareFiles].
func Prepare(ctx context.Context, path string, o CorpusOptions) (*Corpus, error) {
	var files Files
	var err error
	if path == "" {
		o.say("reading the sources of Go's standard library")
		files, err = StandardLibrary(ctx)
	} else {
		files, err = File(path)
	}
	if err != nil {
		return nil, err
	}
	return PrepareFiles(ctx, files, o)
}

// PrepareFiles sets a share of the texts apart, as [Files.Split] does, and returns both parts as
// tokens. The result depends on the texts and the options alone. Errors are those of Files.Split,
// [Train] and [Encode].
func PrepareFiles(ctx context.Context, files Files, o CorpusOptions) (*Corpus, error) {
	training, heldOut, err := files.Split(o.HeldOut, o.Seed)
	if err != nil {
		return nil, err
	}
	c := &Corpus{Words: Bytes()}
	if o.Vocabulary != 0 && o.Vocabulary != c.Words.Vocabulary() {
		part := training
		if part.Bytes() > learnedOf {
			if part, err = part.Take(learnedOf, o.Seed); err != nil {
				return nil, err
			}
		}
		o.say("learning %d tokens from %.1f MB of text", o.Vocabulary, float64(part.Bytes())/1e6)
		if c.Words, err = Train(ctx, part, o.Vocabulary, TrainOptions{Words: o.Words}); err != nil {
			return nil, err
		}
	}
	o.say("writing %.1f MB of text as tokens", float64(training.Bytes()+heldOut.Bytes())/1e6)
	if c.Training, err = Encode(ctx, training, c.Words); err != nil {
		return nil, err
	}
	if c.HeldOut, err = Encode(ctx, heldOut, c.Words); err != nil {
		return nil, err
	}
	if c.Unigram, err = Unigram(ctx, c.Training, c.HeldOut); err != nil {
		return nil, err
	}
	c.Gzip, err = Gzip(ctx, heldOut)
	return c, err
}
