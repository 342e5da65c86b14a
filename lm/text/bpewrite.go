package text

import (
	"encoding/json"
	"io"

	localfiles "github.com/tpustrategy/tpustrategy/internal/files"
)

// Save atomically writes the tokenizer to a file in the format of [BPE.Write].
func (b *BPE) Save(path string) error {
	if err := localfiles.Replace(path, b.Write); err != nil {
		return wrapError("save tokenizer", "", err)
	}
	return nil
}

// Write writes the tokenizer as a tokenizer.json file for [ReadBPE] and Hugging Face's tokenizers.
// The file contains the vocabulary, the added tokens, the merges, the pattern and the normalizer.
// It omits options that Append does not use, such as a token before each text. The same tokenizer
// is always written as the same bytes.
func (b *BPE) Write(w io.Writer) error {
	f := tokenizerJSON{Version: "1.0", Model: modelJSON{Type: "BPE", Vocab: vocabularyJSON{},
		Merges:  make([]mergeJSON, len(b.merges)),
		FuseUnk: b.fuseUnknown, IgnoreMerges: b.ignoreMerges}}
	if b.unknownName != "" {
		f.Model.UnkToken = &b.unknownName
	}
	if b.normalizesNFC {
		f.Normalizer = json.RawMessage(`{"type":"NFC"}`)
	}
	for _, t := range b.addedTokens {
		f.AddedTokens = append(f.AddedTokens, addedTokenJSON{ID: int64(t.id), Content: t.content, SingleWord: t.singleWord,
			LStrip: t.lstrip,
			RStrip: t.rstrip, Normalized: t.normalized, Special: t.special})
	}
	names := make([]string, len(b.tokenText)) // of the vocabulary, by id
	for name, id := range b.idsByName {
		f.Model.Vocab[name], names[id] = int64(id), name
	}
	for i, m := range b.merges {
		f.Model.Merges[i] = mergeJSON{names[m.left], names[m.right]}
	}
	f.PreTokenizer = b.pattern.preTokenizer()
	if b.preTokenizer != nil {
		f.PreTokenizer = b.preTokenizer
	}
	f.Decoder, _ = json.Marshal(byteLevelStep(true))
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		return wrapError("write tokenizer", "", err)
	}
	return nil
}

// byteLevelStep returns the pre-tokenizer step that converts bytes to visible characters. If
// usesRegex is set, the step first splits the text by GPT-2's pattern.
func byteLevelStep(usesRegex bool) *preTokenizerJSON {
	no, yes := false, true
	return &preTokenizerJSON{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &yes,
		UseRegex: map[bool]*bool{false: &no, true: &yes}[usesRegex]}
}

// preTokenizer returns the JSON form of the pattern.
func (w SplitPattern) preTokenizer() *preTokenizerJSON {
	if w == GPT2 || w == NoSplit {
		return byteLevelStep(w == GPT2)
	}
	no := false
	split := preTokenizerJSON{Type: "Split", Behavior: "Isolated", Invert: &no,
		Pattern: map[string]string{"Regex": patterns[w].expression}}
	return &preTokenizerJSON{Type: "Sequence", Pretokenizers: []preTokenizerJSON{split, *byteLevelStep(false)}}
}
