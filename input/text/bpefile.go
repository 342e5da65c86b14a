package text

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	localfiles "github.com/tpustrategy/tpustrategy/internal/files"
)

// ErrTokenizer matches the errors of files that are no tokenizer, or none that [ReadBPE] takes.
var ErrTokenizer = errkind.New(errkind.ValueError, "text: read tokenizer")

func badFile(hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrTokenizer, Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// The parts of a tokenizer.json that a byte-level BPE has.
type (
	bpeFile struct {
		Version       string          `json:"version"`
		Truncation    json.RawMessage `json:"truncation"`
		Padding       json.RawMessage `json:"padding"`
		AddedTokens   []addedToken    `json:"added_tokens"`
		Normalizer    json.RawMessage `json:"normalizer"`
		PreTokenizer  *preTokenizer   `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Decoder       json.RawMessage `json:"decoder"`
		Model         bpeModel        `json:"model"`
	}
	addedToken struct {
		ID         int64  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	preTokenizer struct {
		Type           string `json:"type"`
		AddPrefixSpace *bool  `json:"add_prefix_space,omitempty"`
		TrimOffsets    *bool  `json:"trim_offsets,omitempty"`
		UseRegex       *bool  `json:"use_regex,omitempty"`
		// Pattern has one entry, "Regex" or "String".
		Pattern       map[string]string `json:"pattern,omitempty"`
		Behavior      string            `json:"behavior,omitempty"`
		Invert        *bool             `json:"invert,omitempty"`
		Pretokenizers []preTokenizer    `json:"pretokenizers,omitempty"`
	}
	bpeModel struct {
		Type                    string         `json:"type"`
		Dropout                 *float64       `json:"dropout"`
		UnkToken                *string        `json:"unk_token"`
		ContinuingSubwordPrefix *string        `json:"continuing_subword_prefix"`
		EndOfWordSuffix         *string        `json:"end_of_word_suffix"`
		FuseUnk                 bool           `json:"fuse_unk"`
		ByteFallback            bool           `json:"byte_fallback"`
		IgnoreMerges            bool           `json:"ignore_merges"`
		Vocab                   fileVocabulary `json:"vocab"`
		Merges                  []fileMerge    `json:"merges"`
	}
)

// fileMerge is ["a", "b"], or "a b" in older files.
type fileMerge [2]string

func (m *fileMerge) UnmarshalJSON(data []byte) error {
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

// fileVocabulary is the ids by token. It is written in the order of the ids.
type fileVocabulary map[string]int64

func (v fileVocabulary) MarshalJSON() ([]byte, error) {
	names := slices.SortedFunc(maps.Keys(v), func(a, b string) int { return cmp.Or(cmp.Compare(v[a], v[b]), cmp.Compare(a, b)) })
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

// largestFile is how many bytes of a tokenizer file are read.
const largestFile = 256 << 20

// LoadBPE reads the file of a tokenizer, as [ReadBPE] does.
func LoadBPE(path, separator string) (*BPE, error) {
	data, err := localfiles.Read(path, largestFile)
	if err != nil {
		return nil, within("read tokenizer", "", err)
	}
	b, err := ReadBPE(bytes.NewReader(data), separator)
	if err != nil {
		return nil, within("load", path, err)
	}
	return b, nil
}

// ReadBPE reads a tokenizer.json of Hugging Face's tokenizers that has a byte-level BPE: what [BPE]
// writes, and the files of models such as GPT-2, Llama 3 and Qwen 2. The separator is one of the
// file's special tokens, such as "<|end_of_text|>"; "" takes <|endoftext|>, <|end_of_text|> or the
// only one there is.
//
// Append gives the ids that the official package gives without special tokens (encode with
// add_special_tokens=False), with truncation and padding off. Two things differ. The official
// package finds the names of special tokens in a text, and Append does not. Where Unicode has grown
// between the tables of Go and those of the package, new letters may cut words at other places; the
// bytes come back exactly either way.
//
// What Append could not do as the file says, such as a normalizer or another pattern, is an error.
// So are files that contradict themselves. The errors match [ErrTokenizer].
func ReadBPE(r io.Reader, separator string) (*BPE, error) {
	data, err := localfiles.All(r, largestFile)
	if err != nil {
		return nil, &errkind.Fault{Match: ErrTokenizer, Err: err}
	}
	var f bpeFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, &errkind.Fault{Match: ErrTokenizer, Err: err, Hint: "give a tokenizer.json of Hugging Face's tokenizers"}
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	b := &BPE{}
	if b.words, err = f.PreTokenizer.words(); err != nil {
		return nil, err
	}
	ids, err := b.takeTokens(&f)
	if err != nil {
		return nil, err
	}
	if err := b.takeMerges(&f, ids); err != nil {
		return nil, err
	}
	if err := b.takeSeparator(separator); err != nil {
		return nil, err
	}
	b.ready()
	return b, nil
}

// check refuses what changes ids and is not done here.
func (f *bpeFile) check() error {
	const hint = "give a file of a byte-level BPE, such as that of GPT-2, Llama 3 or Qwen 2"
	m := f.Model
	set := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case len(m.Vocab) == 0:
		return badFile(hint, "it has no vocabulary")
	case m.Type != "" && m.Type != "BPE":
		return badFile(hint, "the model is %s", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return badFile("set it to null: it is for training", "the model leaves out merges at random (dropout)")
	case set(m.ContinuingSubwordPrefix) || set(m.EndOfWordSuffix):
		return badFile(hint, "the model marks the parts of words")
	case m.ByteFallback:
		return badFile(hint, "the model falls back to bytes for single characters")
	case len(f.Normalizer) > 0 && !isNull(f.Normalizer) && !isNFC(f.Normalizer):
		return badFile(hint, "it changes texts before they are cut (normalizer): %.60s", f.Normalizer)
	case len(f.Normalizer) > 0 && !isNull(f.Normalizer):
		return badFile("set normalizer to null if the texts are in this form", "it brings texts to the form NFC (normalizer), which bytes do not come back from")
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func isNFC(raw json.RawMessage) bool {
	var n struct{ Type string }
	return json.Unmarshal(raw, &n) == nil && n.Type == "NFC"
}

// words finds how texts are cut.
func (p *preTokenizer) words() (Words, error) {
	const hint = "give a file that cuts texts as those of GPT-2, Llama 3 or Qwen 2 do"
	is := func(b *bool, without bool) bool {
		if b == nil {
			return without
		}
		return *b
	}
	if p == nil {
		return 0, badFile(hint, "it has no pre_tokenizer")
	}
	steps := p.Pretokenizers
	if p.Type != "Sequence" {
		steps = []preTokenizer{*p}
	}
	if len(steps) == 0 || len(steps) > 2 || steps[len(steps)-1].Type != "ByteLevel" {
		return 0, badFile(hint, "its pre_tokenizer is no ByteLevel, nor a Split and a ByteLevel")
	}
	last := steps[len(steps)-1]
	if is(last.AddPrefixSpace, true) {
		return 0, badFile("set add_prefix_space to false", "it puts a space before texts (add_prefix_space)")
	}
	if len(steps) == 1 {
		if is(last.UseRegex, true) {
			return GPT2, nil
		}
		return NoCut, nil
	}
	split := steps[0]
	if is(last.UseRegex, true) || split.Type != "Split" || split.Behavior != "Isolated" || is(split.Invert, false) {
		return 0, badFile(hint, "its pre_tokenizer is a %s and a ByteLevel, not a Split that isolates and a ByteLevel with use_regex false", split.Type)
	}
	for w, known := range patterns {
		if known.expression != "" && split.Pattern["Regex"] == known.expression {
			return Words(w), nil
		}
	}
	return 0, badFile(hint, "it cuts texts by an unknown pattern: %q", split.Pattern["Regex"]+split.Pattern["String"])
}

// takeTokens reads the tokens and their ids.
func (b *BPE) takeTokens(f *bpeFile) (ids map[string]int32, err error) {
	added, most := map[string]int64{}, int64(16*(len(f.Model.Vocab)+len(f.AddedTokens))+1<<12)
	for _, t := range f.AddedTokens {
		if _, twice := added[t.Content]; twice || t.Content == "" {
			return nil, badFile("give each added token a name of its own", "the added token %q is there twice, or has no name", t.Content)
		}
		added[t.Content] = t.ID
	}
	set := func(id int64, name, text string) error {
		if id < 0 || id >= most || id > math.MaxInt32 {
			return badFile("number the tokens from 0 on", "the token %q has the id %d, and there are %d tokens", name, id, len(f.Model.Vocab)+len(added))
		}
		if need := int(id) + 1 - len(b.text); need > 0 {
			b.text = append(b.text, make([]string, need)...)
		}
		if b.text[id] != "" {
			return badFile("give each token an id of its own", "the tokens %q and %q have the id %d", b.text[id], text, id)
		}
		b.text[id] = text
		return nil
	}
	for _, t := range f.AddedTokens {
		if in, ok := f.Model.Vocab[t.Content]; ok && in != t.ID {
			return nil, badFile("give it one id", "the added token %q has the id %d, and %d in the vocabulary", t.Content, t.ID, in)
		}
		if err := set(t.ID, t.Content, t.Content); err != nil {
			return nil, err
		}
		b.special = append(b.special, specialToken{int32(t.ID), t.Content})
	}
	ids = make(map[string]int32, len(f.Model.Vocab))
	for _, name := range slices.Sorted(maps.Keys(f.Model.Vocab)) {
		id := f.Model.Vocab[name]
		if _, ok := added[name]; ok {
			continue
		}
		text, ok := unshown(name)
		if !ok || text == "" {
			return nil, badFile("write each byte of a token as the character that ByteLevel has for it", "the token %q has characters that stand for no byte", name)
		}
		if err := set(id, name, text); err != nil {
			return nil, err
		}
		ids[text] = int32(id)
	}
	for c := range 256 {
		id, ok := ids[string([]byte{byte(c)})]
		if !ok {
			return nil, badFile("give each of the 256 bytes a token", "the byte %#02x, %q, is no token", c, byteRune[c])
		}
		b.bytes[c] = id
	}
	if f.Model.IgnoreMerges {
		b.ignoreMerges = ids
	}
	return ids, nil
}

// takeMerges reads what is joined.
func (b *BPE) takeMerges(f *bpeFile, ids map[string]int32) error {
	type pair struct{ left, right int32 }
	seen := make(map[pair]bool, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		var at [2]int32
		var text [2]string
		for side, name := range m {
			bytes, ok := unshown(name)
			id, known := ids[bytes]
			if !ok || !known {
				return badFile("merge tokens of the vocabulary", "merge %d is of %q and %q, and %q is no token", i, m[0], m[1], name)
			}
			at[side], text[side] = id, bytes
		}
		joined, ok := ids[text[0]+text[1]]
		if !ok {
			return badFile("give the vocabulary what each merge makes", "merge %d makes %q of %q and %q, which is no token", i, m[0]+m[1], m[0], m[1])
		}
		if seen[pair{at[0], at[1]}] {
			return badFile("leave one of them out", "merge %d, of %q and %q, is there twice", i, m[0], m[1])
		}
		seen[pair{at[0], at[1]}] = true
		b.merges = append(b.merges, merge{at[0], at[1], joined})
	}
	return nil
}

// takeSeparator finds the separator among the special tokens.
func (b *BPE) takeSeparator(name string) error {
	var names []string
	for _, t := range b.special {
		names = append(names, t.content)
	}
	candidates := []string{name}
	if name == "" {
		candidates = []string{EndOfText, "<|end_of_text|>"}
		if len(names) == 1 {
			candidates = names
		}
	}
	for _, c := range candidates {
		if i := slices.Index(names, c); i >= 0 {
			b.separator = b.special[i].id
			return nil
		}
	}
	if name == "" {
		return badFile("name one", "which of the special tokens %q separates texts is not clear", names)
	}
	return badFile(fmt.Sprintf("name one of %q", names), "%q is no special token", name)
}
