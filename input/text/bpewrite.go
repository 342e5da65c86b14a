package text

import (
	"encoding/json"
	"io"

	localfiles "github.com/tpustrategy/tpustrategy/internal/files"
)

// Save writes the tokenizer to a file, whole or not at all, in the form of [BPE.Write].
func (b *BPE) Save(path string) error {
	if err := localfiles.Replace(path, b.Write); err != nil {
		return within("save tokenizer", "", err)
	}
	return nil
}

// Write writes the tokenizer as a tokenizer.json of Hugging Face's tokenizers, which [ReadBPE] and
// the official package read: the vocabulary, the merges and the pattern. What the official package
// does to ids beyond that, such as a token before each text, is not written. The same tokenizer
// gives the same bytes.
func (b *BPE) Write(w io.Writer) error {
	f := bpeFile{Version: "1.0", Model: bpeModel{Type: "BPE", Vocab: fileVocabulary{}, Merges: make([]fileMerge, len(b.merges)), IgnoreMerges: b.ignoreMerges != nil}}
	special := map[int32]bool{}
	for _, t := range b.special {
		special[t.id] = true
		f.AddedTokens = append(f.AddedTokens, addedToken{ID: int64(t.id), Content: t.content, Special: true})
		f.Model.Vocab[t.content] = int64(t.id)
	}
	for id, text := range b.text {
		if text != "" && !special[int32(id)] {
			f.Model.Vocab[shown(text)] = int64(id)
		}
	}
	for i, m := range b.merges {
		f.Model.Merges[i] = fileMerge{shown(b.text[m.left]), shown(b.text[m.right])}
	}
	f.PreTokenizer = b.words.preTokenizer()
	f.Decoder, _ = json.Marshal(byteLevel(true))
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		return within("write tokenizer", "", err)
	}
	return nil
}

// byteLevel is the step that makes bytes visible characters, and cuts words by GPT-2's pattern if
// asked to.
func byteLevel(cuts bool) *preTokenizer {
	no, yes := false, true
	return &preTokenizer{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &yes, UseRegex: map[bool]*bool{false: &no, true: &yes}[cuts]}
}

// preTokenizer is how words are cut, in a file.
func (w Words) preTokenizer() *preTokenizer {
	if w == GPT2 || w == NoCut {
		return byteLevel(w == GPT2)
	}
	no := false
	split := preTokenizer{Type: "Split", Behavior: "Isolated", Invert: &no, Pattern: map[string]string{"Regex": patterns[w].expression}}
	return &preTokenizer{Type: "Sequence", Pretokenizers: []preTokenizer{split, *byteLevel(false)}}
}
