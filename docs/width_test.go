package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notWrapped are the pages whose prose is still wider.
var notWrapped = []string{"errors.md"}

// TestPagesAreWrapped holds the prose of the pages to 100 columns. Code and tables may be wider.
func TestPagesAreWrapped(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	examples, err := filepath.Glob("../examples/*/README.md")
	require.NoError(t, err)
	pages = append(append(pages, "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md"), examples...)
	fenced := regexp.MustCompile("(?ms)^ *```.*?^ *```")
	for _, name := range pages {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		wide := 0
		for line := range strings.Lines(fenced.ReplaceAllString(string(page), "")) {
			line = strings.TrimSuffix(line, "\n")
			prose := !strings.HasPrefix(strings.TrimSpace(line), "|") && !strings.HasPrefix(line, "    ") && strings.Contains(strings.TrimSpace(line), " ")
			if prose && len([]rune(line)) > 100 {
				wide++
			}
		}
		still := false
		for _, other := range notWrapped {
			still = still || name == other
		}
		if still {
			assert.NotZero(t, wide, "%s is wrapped: take it from the list", name)
		} else {
			assert.Zero(t, wide, "%s: lines of more than 100 columns", name)
		}
	}
}
