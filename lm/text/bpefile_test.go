package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

func TestATokenizerIsReadAsItWasWritten(t *testing.T) {
	b := learned(t, 350)
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	require.NoError(t, b.Save(path))
	again, err := LoadBPE(path, "")
	require.NoError(t, err)
	assert.Equal(t, b.tokenText, again.tokenText)
	assert.Equal(t, b.merges, again.merges)
	assert.Equal(t, b.addedTokens, again.addedTokens)
	assert.Equal(t, b.byteIDs, again.byteIDs)
	assert.Equal(t, b.Append(nil, prose), again.Append(nil, prose))

	for w := range patterns {
		other := *b
		other.pattern = SplitPattern(w)
		var out bytes.Buffer
		require.NoError(t, other.Write(&out))
		again, err := ReadBPE(&out, EndOfText)
		require.NoError(t, err)
		assert.Equal(t, SplitPattern(w), again.pattern)
	}
	require.ErrorContains(t, b.Save(filepath.Join(path, "under")), "save tokenizer")
	require.Error(t, b.Write(fullDisk{}))
	_, err = LoadBPE(filepath.Join(t.TempDir(), "none"), "")
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(err))
}

func TestATokenizerThatIsNoFileIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "tokenizer.json")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, "/dev/zero"} {
		hangtest.Within(t, func() {
			_, err := LoadBPE(path, "")
			assert.ErrorContains(t, err, "it is not a regular file")
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		})
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("full") }

// with returns the file of a small tokenizer after a change.
func with(t *testing.T, change func(f map[string]any)) io.Reader {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, learned(t, 300).Write(&out))
	var f map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &f))
	change(f)
	text, err := json.Marshal(f)
	require.NoError(t, err)
	return bytes.NewReader(text)
}

func TestFilesThatLieAreRefused(t *testing.T) {
	at := func(f map[string]any, name string) map[string]any { return f[name].(map[string]any) }
	vocabulary := func(f map[string]any) map[string]any { return at(at(f, "model"), "vocab") }
	merges := func(f map[string]any, first any) {
		list := at(f, "model")["merges"].([]any)
		list[0] = first
	}
	split := func(regex, behavior string, level bool) map[string]any {
		return map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": behavior, "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": level}}}
	}
	for want, change := range map[string]func(f map[string]any){
		"no vocabulary": func(f map[string]any) { at(f, "model")["vocab"] = map[string]any{} },
		"its model is of type Unigram": func(f map[string]any) {
			at(f, "model")["type"], at(f, "model")["vocab"] = "Unigram", []any{[]any{"<unk>", 0.0}}
		},
		"dropout":        func(f map[string]any) { at(f, "model")["dropout"] = 0.1 },
		"parts of words": func(f map[string]any) { at(f, "model")["continuing_subword_prefix"] = "##" },
		"falls back to bytes": func(f map[string]any) {
			at(f, "model")["byte_fallback"] = true
			delete(vocabulary(f), "ÿ")
		},
		"(unk_token), \"<unk>\"": func(f map[string]any) { at(f, "model")["unk_token"] = "<unk>" },
		"no step ByteLevel": func(
			f map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "Digits"}
		},
		"the behavior \"Sideways\"": func(f map[string]any) {
			f["pre_tokenizer"] = split(".", "Sideways",
				false)
		},
		`by the pattern "(a": a group without )`: func(f map[string]any) {
			f["pre_tokenizer"] = split("(a", "Isolated",
				false)
		},
		`\1 is not supported`: func(f map[string]any) {
			f["pre_tokenizer"] = split(`(\d)\1`, "Isolated",
				false)
		},
		"equal after normalization": func(f map[string]any) {
			f["normalizer"] = map[string]any{"type": "NFC"}
			f["added_tokens"] = append(f["added_tokens"].([]any), map[string]any{"id": 300, "content": "ẽ",
				"normalized": true},
				map[string]any{"id": 301, "content": "e\u0303", "normalized": true})
		},
		"normalizer":                    func(f map[string]any) { f["normalizer"] = map[string]any{"type": "Lowercase"} },
		"no pre_tokenizer":              func(f map[string]any) { f["pre_tokenizer"] = nil },
		`the step "Whitespace"`:         func(f map[string]any) { f["pre_tokenizer"] = map[string]any{"type": "Whitespace"} },
		`"a" is no token`:               func(f map[string]any) { delete(vocabulary(f), "a") },
		`the token "a" has the id -1`:   func(f map[string]any) { vocabulary(f)["a"] = -1 },
		`"a" has the id 2000000000`:     func(f map[string]any) { vocabulary(f)["a"] = 2000000000 },
		"have the id 5":                 func(f map[string]any) { vocabulary(f)["a"] = 5 },
		"value of the JSON type string": func(f map[string]any) { vocabulary(f)["a"] = "b" },
		`"no" is no token`:              func(f map[string]any) { merges(f, []any{"a", "no"}) },
		"which is no token":             func(f map[string]any) { merges(f, []any{"a", "z"}) },
		"a merge of 3 tokens":           func(f map[string]any) { merges(f, []any{"a", "b", "c"}) },
		"a merge of 1 tokens":           func(f map[string]any) { merges(f, "ab") },
		"or has no name": func(f map[string]any) {
			f["added_tokens"] = []any{map[string]any{"id": 0,
				"content": ""}}
		},
		"and 0 in the vocabulary": func(f map[string]any) {
			f["added_tokens"] = []any{map[string]any{"id": 9, "content": EndOfText}}
		},
		"not clear which of the special tokens": func(f map[string]any) {
			f["added_tokens"] = []any{map[string]any{"id": 310, "content": "<a>"}, map[string]any{"id": 311, "content": "<b>"}}
			delete(vocabulary(f), EndOfText)
		},
	} {
		_, err := ReadBPE(with(t, change), "")
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrTokenizer, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), want)
	}
	for _, text := range []string{"", "{", "null", "[]", "{}", `{"model":{"vocab":7}}`, "\xff\xfe"} {
		_, err := ReadBPE(strings.NewReader(text), "")
		require.ErrorIs(t, err, ErrTokenizer, text)
	}
	_, err := ReadBPE(with(t, func(map[string]any) {}), "<none>")
	require.ErrorContains(t, err, `"<none>" is no special token; name one of ["<|endoftext|>"]`)
}

// What other files have is read: merges as one string, ids with gaps, and several special tokens.
func TestFilesOfOthersAreRead(t *testing.T) {
	b, err := ReadBPE(with(t, func(f map[string]any) {
		model := f["model"].(map[string]any)
		for i, m := range model["merges"].([]any) {
			model["merges"].([]any)[i] = m.([]any)[0].(string) + " " + m.([]any)[1].(string)
		}
		delete(model, "type")
		f["added_tokens"] = append(f["added_tokens"].([]any), map[string]any{"id": 350, "content": "<pad>", "special": true})
	}), "<pad>")
	require.NoError(t, err)
	assert.Equal(t, learned(t, 300).Append(nil, prose), b.Append(nil, prose))
	assert.EqualValues(t, 350, b.Separator())
	assert.Equal(t, 351, b.Vocabulary())
	_, err = b.AppendText(nil, []int32{320})
	require.ErrorContains(t, err, "number 0 is 320")

	// With ignore_merges, words that are tokens become these tokens, independent of the merges.
	b, err = ReadBPE(with(t, func(f map[string]any) {
		model := f["model"].(map[string]any)
		model["ignore_merges"] = true
		model["vocab"].(map[string]any)["xyz"] = 300
	}), "")
	require.NoError(t, err)
	assert.Equal(t, []int32{300}, b.Append(nil, []byte("xyz")))
	assert.Len(t, b.Append(nil, []byte("xyzz")), 4)
}

// A byte without a token is never left out: Append returns NoToken, and Encode names the byte, its
// position and the file.
func TestABytesWithoutATokenIsAnError(t *testing.T) {
	b, err := ReadBPE(with(t, func(f map[string]any) {
		vocabulary := f["model"].(map[string]any)["vocab"].(map[string]any)
		for _, c := range []int{0xc0, 0xc1, 0xf5, 0xff} {
			delete(vocabulary, string(byteToRune[c]))
		}
	}), "")
	require.NoError(t, err)
	assert.Equal(t, learned(t, 300).Append(nil, prose), b.Append(nil, prose))
	assert.Equal(t, []int32{b.byteIDs['a'], NoToken, b.byteIDs['b']}, b.Append(nil, []byte("a\xffb")))
	_, err = b.AppendText(nil, []int32{NoToken})
	require.Error(t, err)
	_, err = EncodeText([]byte("ab\xff"), b)
	require.ErrorContains(t, err, "no token for the byte 0xff at position 2")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	files, err := ListFiles(write(t, map[string]string{"a": "good", "b": "x\n\xc0"}), "*")
	require.NoError(t, err)
	_, err = Encode(t.Context(), files, b)
	require.ErrorContains(t, err, "b: the tokenizer's vocabulary has no token for the byte 0xc0 at position 2")
}

func FuzzReadBPE(f *testing.F) {
	var out bytes.Buffer
	require.NoError(f, learned(f, 262).Write(&out))
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		b, err := ReadBPE(bytes.NewReader(file), "")
		if err != nil {
			require.ErrorIs(t, err, ErrTokenizer)
			return
		}
		if text := []byte("any text, it's 1\n\xff"); !slices.Contains(b.Append(nil, text), NoToken) {
			_, err = b.AppendText(nil, b.Append(nil, text))
			require.NoError(t, err)
		}
	})
}

func TestSaveLeavesTheFileWhole(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("the system has no /dev/full")
	}
	err := learned(t, 300).Save("/dev/full")
	assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err))
}

// Reading a file with random changes never panics.
func TestDamagedFilesAreReadOrRefused(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, learned(t, 270).Write(&out))
	r := rand.New(rand.NewPCG(8, 8))
	refused := 0
	for range 400 {
		file := bytes.Clone(out.Bytes())
		for range 1 + r.IntN(3) {
			file[r.IntN(len(file))] = `0123456789"{}[]:,-ae `[r.IntN(21)]
		}
		b, err := ReadBPE(bytes.NewReader(file), "")
		if err != nil {
			require.ErrorIs(t, err, ErrTokenizer)
			refused++
			continue
		}
		text := []byte("any text, it's 1\n\xff")
		if ids := b.Append(nil, text); !slices.Contains(ids, NoToken) {
			back, err := b.AppendText(nil, ids)
			require.NoError(t, err)
			require.Equal(t, string(text), strings.TrimPrefix(string(back), " "), "without add_prefix_space a space comes first")
		}
	}
	assert.Greater(t, refused, 100)
}
