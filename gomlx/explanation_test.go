package gomlx_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

const updateGoldens = "TPUSTRATEGY_UPDATE_GOLDENS"

// golden compares a text with a file under testdata, or writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := "testdata/" + name
	if os.Getenv(updateGoldens) == "1" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "make it with %s=1", updateGoldens)
	assert.Equal(t, string(want), text, "%s=1 writes it again", updateGoldens)
}

func TestExplainSaysOnceOfEachProgramHowItIsSplit(t *testing.T) {
	t.Setenv("TPUSTRATEGY_CPU_PLUGIN", plugintest.Path(t, "cpu"))
	figures := regexp.MustCompile(`memory of one device|^tpustrategy:   (all-|collective|reduce-)`)
	for _, c := range []struct{ name, config, axis string }{
		{"explain_megatron.txt", "devices=6,logical=2,rules=megatron,explain=1", "logical"},
		{"explain_idle.txt", "devices=4,logical=2,explain=1", "replica"},
	} {
		var notes bytes.Buffer
		b, err := gomlx.NewFromConfig(t.Context(), c.config, gomlx.Options{Log: &notes})
		require.NoError(t, err)
		_, err = trainWords(b, 16, 3)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		var text strings.Builder
		for line := range strings.Lines(notes.String()) {
			require.True(t, strings.HasPrefix(line, "tpustrategy: "), line)
			// GoMLX generates the names of metrics in each process, so their lengths vary. The
			// figures depend on the compiler.
			if !strings.Contains(line, "_uuid_") && !figures.MatchString(line) {
				text.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
			}
		}
		golden(t, c.name, text.String())
		assert.Regexp(t, `memory of one device: arguments [0-9.]+ KiB, results [0-9.]+ KiB \(of which [0-9.]+ KiB in the `+
			`place of arguments\), temporaries`, notes.String())
		assert.Regexp(t, `  all-reduce +`+c.axis+` +f32 +[0-9]+ +[0-9.]+ KiB`, notes.String())
		assert.Equal(t, 1, strings.Count(text.String(), `program "Trainer#1" on `))
	}
}

func TestAnExplanationOfNothing(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, (&gomlx.Explanation{Program: "a\x1b[2J", Mesh: "replica=1",
		Results: []gomlx.TensorInfo{{DType: "Float32"}}}).WriteText(&text))
	assert.Equal(t, "program \"a\\x1b[2J\" on replica=1\n  it has no parameters\n  results: 1; Float32[] whole\n",
		text.String())
}
