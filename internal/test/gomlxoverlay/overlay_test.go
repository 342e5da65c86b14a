package gomlxoverlay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func prepared(t *testing.T, o Options) (*Overlay, error) {
	t.Helper()
	o.Module = "../../.."
	return Prepare(t.Context(), t.TempDir(), o)
}

func TestABuildSeesWhatIsAddedAndChanged(t *testing.T) {
	o, err := prepared(t, Options{
		Add: map[string]string{"backends/default/added.go": "package _default\n"},
		Edits: []Edit{{"ml/train/loop.go", "package train\n", "package train // one\n"}, {"ml/train/loop.go", "// one\n",
			"// two\n"}},
		Standard: []Edit{{"math/rand/rand.go", "func NewSource(seed int64) Source {\n",
			"func NewSource(seed int64) Source { /* here */\n"}},
	})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(o.Dir, "overlay.json"))
	require.NoError(t, err)
	var list struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(text, &list))
	found := map[string]string{}
	for to, from := range list.Replace {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		found[filepath.Base(to)] = string(text)
	}
	require.Len(t, found, 3)
	assert.Equal(t, "package _default\n", found["added.go"])
	assert.Contains(t, found["loop.go"], "package train // two\n", "the second edit is of what the first left")
	assert.Contains(t, found["rand.go"], "/* here */")
	modfile, err := os.ReadFile(filepath.Join(o.Dir, "go.mod"))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(modfile), "replace github.com/gomlx/gomlx => "+o.GoMLX+"\n"))
	assert.Len(t, o.Flags(), 3)

	// The go command accepts the overlay, and the package contains the added file.
	files, err := run(t.Context(), o.Module, append(append([]string{"list"}, o.Flags()...), "-f", "{{.GoFiles}}",
		"github.com/gomlx/gomlx/backends/default")...)
	require.NoError(t, err)
	assert.Contains(t, files, "added.go")
}

func TestWhatAnotherVersionHasOtherwiseIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		says    string
	}{
		"added over a file": {Options{Add: map[string]string{"ml/train/loop.go": ""}}, "has that file"},
		"text is not there": {Options{Edits: []Edit{{"ml/train/loop.go", "no such text", ""}}}, "0 times, want once"},
		"text is there often": {Options{Edits: []Edit{{"ml/train/loop.go", "loop", ""}}},
			"want once: the file is of another version"},
		"no such file":         {Options{Edits: []Edit{{"ml/train/nosuch.go", "a", ""}}}, "no such file"},
		"standard library too": {Options{Standard: []Edit{{"math/rand/rand.go", "no such text", ""}}}, "0 times, want once"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := prepared(t, c.options)
			assert.ErrorContains(t, err, c.says)
		})
	}
}
