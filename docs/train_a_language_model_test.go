package docs_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheLanguageModelOfThePageIsTheExamples holds the page's snippets to the sources, and its
// counts of lines to the files.
func TestTheLanguageModelOfThePageIsTheExamples(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	lines := func(path string) int { return strings.Count(read(path), "\n") }
	page := read("train-a-language-model.md")
	const folder = "../examples/gpt/"
	sources := read(folder+"main.go") + read(folder+"decoder/model.go")
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	assert.Len(t, snippets, 5)
	for _, snippet := range snippets {
		assert.Contains(t, sources, snippet[1])
	}

	model := lines(folder + "decoder/model.go")
	all := lines(folder+"main.go") + model + lines(folder+"decoder/presets.go")
	assert.Less(t, model, 100)
	assert.Less(t, all, 250)
	assert.Contains(t, page, strconv.Itoa(model)+" lines of model")
	assert.Contains(t, page, "decoder/presets.go) | "+strconv.Itoa(all)+" |")
	assert.Contains(t, page, "orbax 0.12.8 | "+strconv.Itoa(lines("compare/gpt_flax.py"))+" |")
	assert.Contains(t, page, "Keras 3.15.1 on JAX | "+strconv.Itoa(lines("compare/gpt_keras.py"))+" |")
}
