package text

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	localfiles "github.com/tpustrategy/tpustrategy/internal/files"
)

// ErrTokenizer matches errors for files that are not tokenizers that [ReadBPE] supports.
var ErrTokenizer = errkind.New(errkind.ValueError, "text: read tokenizer")

func tokenizerFileError(hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrTokenizer, Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// The JSON objects in the tokenizer.json of a byte-level BPE.
type (
	tokenizerJSON struct {
		Version       string            `json:"version"`
		Truncation    json.RawMessage   `json:"truncation"`
		Padding       json.RawMessage   `json:"padding"`
		AddedTokens   []addedTokenJSON  `json:"added_tokens"`
		Normalizer    json.RawMessage   `json:"normalizer"`
		PreTokenizer  *preTokenizerJSON `json:"pre_tokenizer"`
		PostProcessor json.RawMessage   `json:"post_processor"`
		Decoder       json.RawMessage   `json:"decoder"`
		Model         modelJSON         `json:"model"`
	}
	addedTokenJSON struct {
		ID         int64  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	preTokenizerJSON struct {
		Type           string `json:"type"`
		AddPrefixSpace *bool  `json:"add_prefix_space,omitempty"`
		TrimOffsets    *bool  `json:"trim_offsets,omitempty"`
		UseRegex       *bool  `json:"use_regex,omitempty"`
		// IndividualDigits is an option of Digits.
		IndividualDigits *bool `json:"individual_digits,omitempty"`
		// Pattern has one entry, "Regex" or "String".
		Pattern       map[string]string  `json:"pattern,omitempty"`
		Behavior      string             `json:"behavior,omitempty"`
		Invert        *bool              `json:"invert,omitempty"`
		Pretokenizers []preTokenizerJSON `json:"pretokenizers,omitempty"`
	}
	modelJSON struct {
		Type                    string         `json:"type"`
		Dropout                 *float64       `json:"dropout"`
		UnkToken                *string        `json:"unk_token"`
		ContinuingSubwordPrefix *string        `json:"continuing_subword_prefix"`
		EndOfWordSuffix         *string        `json:"end_of_word_suffix"`
		FuseUnk                 bool           `json:"fuse_unk"`
		ByteFallback            bool           `json:"byte_fallback"`
		IgnoreMerges            bool           `json:"ignore_merges"`
		Vocab                   vocabularyJSON `json:"vocab"`
		Merges                  []mergeJSON    `json:"merges"`
	}
)

// mergeJSON is a merge: ["a", "b"], or "a b" in older files.
type mergeJSON [2]string

func (m *mergeJSON) UnmarshalJSON(data []byte) error {
	var pair []string
	if bytes.HasPrefix(data, []byte(`"`)) {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		pair = strings.Split(text, " ")
	} else if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a merge of %d tokens: %s", len(pair), data)
	}
	m[0], m[1] = pair[0], pair[1]
	return nil
}

// vocabularyJSON maps tokens to ids. Its JSON form is ordered by id.
type vocabularyJSON map[string]int64

func (v vocabularyJSON) MarshalJSON() ([]byte, error) {
	names := slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(v[a], v[b]),
			cmp.Compare(a, b))
	})
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	out.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := e.Encode(name); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, ":%d", v[name])
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// maxTokenizerBytes is the maximum size of a tokenizer file in bytes.
const maxTokenizerBytes = 256 << 20

// LoadBPE reads a tokenizer from a file. See [ReadBPE].
func LoadBPE(path, separator string) (*BPE, error) {
	data, err := localfiles.ReadFile(path, maxTokenizerBytes)
	if err != nil {
		return nil, wrapError("read tokenizer", "", err)
	}
	b, err := ReadBPE(bytes.NewReader(data), separator)
	if err != nil {
		return nil, wrapError("load", path, err)
	}
	return b, nil
}

// ReadBPE reads a tokenizer.json of Hugging Face's tokenizers that contains a byte-level BPE: a
// file that [BPE.Write] writes, or a file of a model such as GPT-2, Llama 3, Qwen 2, DeepSeek,
// Falcon and StarCoder. The separator is the content of one of the file's added tokens, such as
// "<|end_of_text|>". If it is empty, ReadBPE uses the only special token of the file, or the first
// of <|endoftext|>, <|end_of_text|>, <｜end▁of▁sentence｜> and </s> that the file has.
//
// The ids equal those of Hugging Face's tokenizers without truncation and padding, and without
// special tokens before and after the text (add_special_tokens=False). There are three differences.
// Hugging Face's tokenizers omit a byte that has no token, and Append returns [NoToken]. They
// renumber added tokens whose ids do not follow the vocabulary, and ReadBPE uses the ids of the
// file. Characters of newer versions of Unicode may be split or normalized differently.
//
// Inconsistent files and files that require unsupported features, such as a normalizer other than
// NFC, are errors that match [ErrTokenizer].
func ReadBPE(r io.Reader, separator string) (*BPE, error) {
	if r == nil {
		return nil, tokenizerFileError("give an open file, or use LoadBPE", "the reader is nil")
	}
	data, err := localfiles.ReadAll(r, maxTokenizerBytes)
	if err != nil {
		return nil, &errkind.Fault{Match: ErrTokenizer, Err: err}
	}
	f, err := parseTokenizerFile(data)
	if err != nil {
		return nil, err
	}
	b := &BPE{}
	if err := f.checkSupported(); err != nil {
		return nil, err
	}
	if b.normalizesNFC, err = isNFC(f.Normalizer); err != nil {
		return nil, err
	}
	if err := b.readPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := b.readTokens(&f); err != nil {
		return nil, err
	}
	if err := b.readMerges(&f); err != nil {
		return nil, err
	}
	if err := b.chooseSeparator(separator); err != nil {
		return nil, err
	}
	return b, b.buildTables()
}

const bpeFileHint = "give a file of a byte-level BPE, such as that of GPT-2, Llama 3 or Qwen 2"

// parseTokenizerFile parses a tokenizer file. It checks the type of the model first, because the
// vocabularies of other model types have a different JSON form.
func parseTokenizerFile(data []byte) (f tokenizerJSON, err error) {
	var header struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if err = json.Unmarshal(data, &header); err == nil {
		if name := header.Model.Type; name != "" && name != "BPE" {
			return f, tokenizerFileError(bpeFileHint, "its model is of type %s, and only BPE is supported", name)
		}
		err = json.Unmarshal(data, &f)
	}
	if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
		return f, tokenizerFileError("give a tokenizer.json of Hugging Face's tokenizers",
			"the field %q has a value of the JSON type %s", mistyped.Field, mistyped.Value)
	}
	if err != nil {
		return f, &errkind.Fault{Match: ErrTokenizer, Err: err, Hint: "give a tokenizer.json of Hugging Face's tokenizers"}
	}
	return f, nil
}

// checkSupported returns an error for unsupported options that affect token ids.
func (f *tokenizerJSON) checkSupported() error {
	m := f.Model
	set := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case len(m.Vocab) == 0:
		return tokenizerFileError(bpeFileHint, "it has no vocabulary")
	case m.Dropout != nil && *m.Dropout != 0:
		return tokenizerFileError("set it to null: it is for training", "the model leaves out merges at random (dropout)")
	case set(m.ContinuingSubwordPrefix) || set(m.EndOfWordSuffix):
		return tokenizerFileError(bpeFileHint, "the model marks the parts of words")
	}
	return nil
}

// isNFC reports whether raw is an NFC normalizer. It returns an error for unsupported normalizers.
func isNFC(raw json.RawMessage) (bool, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return false, nil
	}
	var n struct {
		Type        string
		Normalizers []json.RawMessage
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return false, &errkind.Fault{Match: ErrTokenizer, Reason: "the normalizer cannot be read", Err: err}
	}
	if n.Type == "NFC" {
		return true, nil
	}
	if n.Type != "Sequence" {
		return false, tokenizerFileError("give a file without a normalizer, or with NFC",
			"it changes texts before they are split (normalizer): %.60s", raw)
	}
	nfc := false
	for _, step := range n.Normalizers {
		is, err := isNFC(step)
		if err != nil {
			return false, err
		}
		nfc = nfc || is
	}
	return nfc, nil
}

// readPreTokenizer reads how texts are split: by a SplitPattern, or by splitSteps.
func (b *BPE) readPreTokenizer(p *preTokenizerJSON) error {
	if p == nil {
		return tokenizerFileError(bpeFileHint, "it has no pre_tokenizer")
	}
	steps, byteLevel, err := p.splitSteps()
	if err != nil {
		return err
	}
	if !byteLevel {
		return tokenizerFileError(bpeFileHint, "its pre_tokenizer has no step ByteLevel")
	}
	for w := range patterns {
		if reflect.DeepEqual(p.withDefaults(), SplitPattern(w).preTokenizer().withDefaults()) {
			b.pattern = SplitPattern(w)
			return nil
		}
	}
	b.splitSteps, b.preTokenizer = steps, p
	return nil
}

// withDefaults returns the options that affect the splitting of texts, with their defaults filled in.
func (p *preTokenizerJSON) withDefaults() preTokenizerJSON {
	out := *p
	fill := func(b *bool, absent bool) *bool {
		if b == nil {
			b = &absent
		}
		return b
	}
	out.TrimOffsets = nil
	if p.Type == "ByteLevel" {
		out.AddPrefixSpace, out.UseRegex = fill(p.AddPrefixSpace, true), fill(p.UseRegex, true)
	}
	out.Invert = fill(p.Invert, false)
	out.Pretokenizers = nil
	for _, sub := range p.Pretokenizers {
		out.Pretokenizers = append(out.Pretokenizers, sub.withDefaults())
	}
	if p.Type == "Sequence" && len(out.Pretokenizers) == 1 {
		return out.Pretokenizers[0]
	}
	return out
}

func (b *BPE) readTokens(f *tokenizerJSON) error {
	maxIDs := int64(16*(len(f.Model.Vocab)+len(f.AddedTokens)) + 1<<12)
	set := func(id int64, name, text string) error {
		if id < 0 || id >= maxIDs || id > math.MaxInt32 {
			return tokenizerFileError("number the tokens from 0 on", "the token %q has the id %d, and there are %d tokens",
				name, id, len(f.Model.Vocab)+len(f.AddedTokens))
		}
		if need := int(id) + 1 - len(b.tokenText); need > 0 {
			b.tokenText = append(b.tokenText, make([]string, need)...)
		}
		if b.tokenText[id] != "" {
			return tokenizerFileError("give each token an id of its own", "the tokens %q and %q have the id %d", b.tokenText[id],
				text, id)
		}
		b.tokenText[id] = text
		return nil
	}
	b.idsByName = make(map[string]int32, len(f.Model.Vocab))
	for _, name := range slices.Sorted(maps.Keys(f.Model.Vocab)) {
		id := f.Model.Vocab[name]
		if name == "" {
			return tokenizerFileError("give each token a name", "a token of the vocabulary has no name")
		}
		text, ok := visibleToBytes(name)
		if !ok {
			text = name // no text has this token, because its characters are not those of ByteLevel
		}
		if err := set(id, name, text); err != nil {
			return err
		}
		b.idsByName[name] = int32(id)
	}
	seen := map[string]bool{}
	for _, t := range f.AddedTokens {
		if seen[t.Content] || t.Content == "" {
			return tokenizerFileError("give each added token a name of its own",
				"the added token %q is there twice, or has no name", t.Content)
		}
		seen[t.Content] = true
		if in, ok := f.Model.Vocab[t.Content]; ok && in != t.ID {
			return tokenizerFileError("give it one id", "the added token %q has the id %d, and %d in the vocabulary", t.Content,
				t.ID, in)
		} else if !ok {
			if err := set(t.ID, t.Content, t.Content); err != nil {
				return err
			}
		}
		b.addedTokens = append(b.addedTokens, addedToken{id: int32(t.ID), content: t.Content, singleWord: t.SingleWord,
			lstrip: t.LStrip, rstrip: t.RStrip,
			normalized: t.Normalized, special: t.Special})
	}
	b.ignoreMerges = f.Model.IgnoreMerges
	return b.readUnknown(&f.Model)
}

// readUnknown reads how bytes without a token are encoded.
func (b *BPE) readUnknown(m *modelJSON) error {
	b.unknownID = NoToken
	if m.UnkToken != nil && *m.UnkToken != "" {
		id, ok := b.idsByName[*m.UnkToken]
		if !ok {
			return tokenizerFileError("name a token of the vocabulary, or null",
				"the token for unknown characters (unk_token), %q, is no token of the vocabulary", *m.UnkToken)
		}
		b.unknownID, b.fuseUnknown, b.unknownName = id, m.FuseUnk, *m.UnkToken
	}
	for c := range 256 {
		if _, ok := b.idsByName[string(byteToRune[c])]; !ok && m.ByteFallback {
			return tokenizerFileError("give each of the 256 bytes a token, or set byte_fallback to false",
				"the byte %#02x, %q, has no token, and the model falls back to bytes of characters (byte_fallback)", c,
				byteToRune[c])
		}
	}
	return nil
}

// readMerges reads the merges. Of several merges of the same pair, only the last is used.
func (b *BPE) readMerges(f *tokenizerJSON) error {
	type pair struct{ left, right int32 }
	last := make(map[pair]int, len(f.Model.Merges)) // of merges of the same tokens the last one counts
	merges := make([]merge, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		var at [2]int32
		for side, name := range m {
			id, ok := b.idsByName[name]
			if !ok {
				return tokenizerFileError("merge tokens of the vocabulary", "merge %d is of %q and %q, and %q is no token", i,
					m[0], m[1], name)
			}
			at[side] = id
		}
		joined, ok := b.idsByName[m[0]+m[1]]
		if !ok {
			return tokenizerFileError("give the vocabulary what each merge makes",
				"merge %d makes %q of %q and %q, which is no token", i, m[0]+m[1], m[0], m[1])
		}
		merges[i] = merge{at[0], at[1], joined}
		last[pair{at[0], at[1]}] = i
	}
	for i, m := range merges {
		if last[pair{m.left, m.right}] == i {
			b.merges = append(b.merges, m)
		}
	}
	return nil
}

// separators are the tokens that well-known models use to separate texts.
var separators = []string{EndOfText, "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>"}

// chooseSeparator selects the separator from the added tokens, as described at [ReadBPE].
func (b *BPE) chooseSeparator(name string) error {
	var names []string // of special tokens
	for _, t := range b.addedTokens {
		if t.content == name {
			b.separator = t.id
			return nil
		}
		if t.special {
			names = append(names, t.content)
		}
	}
	if name != "" {
		return tokenizerFileError(fmt.Sprintf("name one of %.20q", names), "%q is no special token", name)
	}
	candidates := separators
	if len(names) == 1 {
		candidates = names
	}
	for _, c := range candidates {
		if slices.ContainsFunc(b.addedTokens, func(t addedToken) bool { return t.content == c }) {
			return b.chooseSeparator(c)
		}
	}
	return tokenizerFileError("name one", "it is not clear which of the special tokens %.20q separates texts", names)
}
