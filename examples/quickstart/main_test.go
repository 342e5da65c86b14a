package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func Example() {
	main()
	// Output: fitted: true on 4 replicas
}

// The program that the README shows is this one.
func TestTheReadmeShowsThisProgram(t *testing.T) {
	plugintest.Path(t, "cpu")
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, shown, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	shown, _, _ = strings.Cut(shown, "```")
	_, body, _ := strings.Cut(string(program), "func main() {")
	for line := range strings.Lines(shown) {
		if line = strings.TrimSpace(line); line != "" && line != "..." {
			assert.Contains(t, body, line)
		}
	}
}
