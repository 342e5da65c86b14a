//go:build cgo

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// TestTheTutorialRuns holds the page's code to the example, and runs its commands in their order, with
// fewer steps, and for CPU devices in the place of a slice.
func TestTheTutorialRuns(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	data, err := os.ReadFile("tutorial.md")
	require.NoError(t, err)
	page := strings.ReplaceAll(string(data), "\\\n", " ")
	program, err := os.ReadFile("../examples/mnist/main.go")
	require.NoError(t, err)
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(data), -1)
	require.Len(t, snippets, 2)
	for _, snippet := range snippets {
		assert.Contains(t, string(program), snippet[1])
	}
	code := regexp.MustCompile(`(?m)^\s*(//.*)?\n`).ReplaceAllString(string(program), "")
	assert.Equal(t, 40, strings.Count(code, "\n"), "the page says how many lines of code the program has")

	dir := t.TempDir()
	for _, name := range []string{"mnist", "tpustrategy"} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), map[string]string{"mnist": "../examples/mnist", "tpustrategy": "../cmd/tpustrategy"}[name]).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	commands := regexp.MustCompile(`(?m)^    go run (.*)$`).FindAllStringSubmatch(page, -1)
	require.Len(t, commands, 7)
	steps := "22"
	for _, c := range commands {
		line := strings.NewReplacer("./examples/mnist -", "./mnist -", "./cmd/tpustrategy ", "./tpustrategy ", "-steps 800", "", "v5e:2x4", "cpu:8").Replace(c[1])
		if strings.HasPrefix(line, "./mnist") {
			if strings.Contains(line, "-resume") {
				steps = "44"
			}
			line += " -steps " + steps + " -plugin '" + plugin + "'"
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
	}
	for _, name := range []string{"run/best", "run/curve.html", "run/events", "run/losses.csv", "model.safetensors", "split/checkpoints"} {
		_, err := os.Stat(filepath.Join(dir, name))
		assert.NoError(t, err)
	}
}
