package docs_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheLanguageModelsLinesAreCounted compares the line counts in the page with the files.
func TestTheLanguageModelsLinesAreCounted(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	lines := func(path string) int { return strings.Count(read(path), "\n") }
	page := read("train-a-language-model.md")
	const folder = "../examples/gpt/"
	model := lines("../lm/decoder/model.go")
	all := lines(folder+"main.go") + model + lines("../lm/decoder/presets.go")
	assert.Less(t, model, 100)
	assert.Less(t, all, 260)
	assert.Contains(t, page, strconv.Itoa(model)+" lines of model")
	assert.Contains(t, page, "decoder/presets.go) | "+strconv.Itoa(all)+" |")
	assert.Contains(t, page, "orbax 0.12.8 | "+strconv.Itoa(lines("compare/gpt_flax.py"))+" |")
	assert.Contains(t, page, "Keras 3.15.1 on JAX | "+strconv.Itoa(lines("compare/gpt_keras.py"))+" |")
}
