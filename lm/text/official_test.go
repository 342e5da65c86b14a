package text

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// python runs a program with the official packages, where make test-python has installed them.
func python(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") == "" {
		t.Skip("make test-python runs this test")
	}
	interpreter := "python3"
	if other := os.Getenv("TPUSTRATEGY_PYTHON"); other != "" {
		interpreter = other
	}
	cmd := exec.CommandContext(t.Context(), interpreter, append([]string{"-c", program}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	return out
}

// odd is text that tokenizers easily get wrong.
var odd = []string{
	"", " ", "  ", "\n", " \n", "\t\t x", "a  b", "a   b\n\n\n  c", "x \n y", "\r\n\r\n", "trailing   ", "\u00a0\u00a0a",
	"\u2003\u2003x", "\u0085x", "\u200b\u200bx",
	"it's they'll don't I'M WE'RE 'tis 's ' s", "''s", "'LL 'Ve 'rE 'ſ ſ", "1234567 12 3.14 ٣٤٥ ⅷ ² ½x",
	"αβγ Ωμέγα здравствуй 你好 世界 こんにちは 안녕 ไทย हिन्दी",
	"e\u0301 n\u0303", "👍🏽 👨‍👩‍👧‍👦 🇩🇪", "\u0000\u0001\u007f\u0080", "\ufeff\ufffd\ufffe",
	"\U0010ffff\U000e0001", "a\u2028b\u2029c\vd\fe", "!!! ?!?! -- --- ---- -----",
	"\u1680\u180e\u202f\u205f\u3000x", strings.Repeat("a", 300), strings.Repeat("-", 301), strings.Repeat("ab", 200) +
		strings.Repeat(" ", 77) + "x", "x" + strings.Repeat("\n", 99),
	"func (t *T) m() error {\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n}\n", "ǅ ʰ ª º ᴬ 々 〇 Ⅻ",
	"\u0300x \u20dd",
}

// official is the result of the official package for texts.
type official struct {
	Merges [][2]string
	IDs    [][]int32
	Texts  []string
	File   string
}

// The official package learns the same merges, and reads and writes the same files: ids of Go
// sources and of odd text are equal, both ways.
func TestOfficialTokenizers(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") == "" {
		t.Skip("make test-python runs this test")
	}
	sources, err := GoSources(t.Context())
	require.NoError(t, err)
	_, sample, err := sources.Split(0.01, 7)
	require.NoError(t, err)
	_, others, err := sources.Split(0.004, 8)
	require.NoError(t, err)
	for _, f := range []*Files{&sample, &others} { // the official package takes minutes for lines of many KB
		f.texts = slices.DeleteFunc(f.texts, func(t textRange) bool { return t.end > 40<<10 })
	}
	dir := t.TempDir()
	var texts []string
	for _, f := range []Files{sample, others} {
		for p, err := range f.readChunks(t.Context()) {
			require.NoError(t, err)
			texts = append(texts, strings.ToValidUTF8(string(p.data), "\ufffd"))
		}
	}
	training := len(read(t, sample))
	texts = append(texts, odd...)
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 { // of characters that patterns tell apart
		var s strings.Builder
		for range 1 + r.IntN(30) {
			s.WriteString([]string{" ", "\n", "\r", "\t", "a", "S", "1", "٣", "!", "'", "'s", "'RE", "é", "世", "\u00a0",
				"\u2003", "👍", "\u0301"}[r.IntN(18)])
		}
		texts = append(texts, s.String())
	}
	for i := range patterns {
		w := SplitPattern(i)
		t.Run(w.String(), func(t *testing.T) {
			ours, err := Train(t.Context(), sample, 3000, TrainOptions{Pattern: w})
			require.NoError(t, err)
			given, few := texts, training
			if w != GPT2 && w != Lines {
				given, few = texts[training:], 0
			}
			if w == NoSplit {
				given = texts[len(texts)-300:] // whole sources as words take the official package long
			}
			path := filepath.Join(dir, "ours.json")
			require.NoError(t, ours.Save(path))
			in, err := json.Marshal(map[string]any{"texts": given, "training": few, "vocabulary": 3000})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "in.json"), in, 0o644))
			var got official
			require.NoError(t, json.Unmarshal(python(t, `
import json, sys
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
given = json.load(open(sys.argv[1] + "/in.json"))
ours = Tokenizer.from_file(sys.argv[1] + "/ours.json")
out = {"IDs": [ours.encode(t, add_special_tokens=False).ids for t in given["texts"]]}
out["Texts"] = [ours.decode(ids) for ids in out["IDs"]]
out["File"] = ours.to_str()
if given["training"]:
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = ours.pre_tokenizer
    theirs.decoder = decoders.ByteLevel()
    theirs.train_from_iterator(given["texts"][:given["training"]], trainers.BpeTrainer(vocab_size=given["vocabulary"],
        special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(theirs.to_str())["model"]
    out["Merges"] = model["merges"]
    out["File"] = theirs.to_str()
json.dump(out, sys.stdout)
`, dir), &got))
			theirs, err := ReadBPE(strings.NewReader(got.File), "")
			require.NoError(t, err)
			if few > 0 {
				require.Len(t, got.Merges, len(ours.merges))
				for i, m := range ours.merges {
					require.Equal(t, got.Merges[i], [2]string{bytesToVisible(ours.tokenText[m.left]),
						bytesToVisible(ours.tokenText[m.right])}, "merge %d", i)
				}
			}
			count := 0
			for i, text := range given {
				want := got.IDs[i]
				require.Equal(t, want, append([]int32{}, ours.Append(nil, []byte(text))...), "%.200q", text)
				require.Equal(t, want, append([]int32{}, theirs.Append(nil, []byte(text))...), "%.200q", text)
				require.Equal(t, text, got.Texts[i])
				count += len(want)
			}
			var again, first bytes.Buffer
			require.NoError(t, ours.Write(&first))
			require.NoError(t, theirs.Write(&again))
			assert.Equal(t, first.String(), again.String(), "the file that theirs gives")
			t.Logf("%d texts, %d tokens", len(given), count)
		})
	}
}
