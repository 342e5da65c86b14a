//go:build cgo

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

// TestPagesAreShort limits each page to 2,000 words, including tables and code.
func TestPagesAreShort(t *testing.T) {
	names, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, name := range append(names, "../README.md", "../CONTRIBUTING.md") {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		words := len(strings.Fields(string(page)))
		assert.Less(t, words, 2000, "%s: words", name)
	}
}

// TestPageLinksResolve checks that the files and headings of links between pages exist.
func TestPageLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s:]*)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	punctuation := regexp.MustCompile(`[^\w -]`)
	anchors := func(path string) (all []string) {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range heading.FindAllStringSubmatch(string(page), -1) {
			all = append(all, strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
		}
		return all
	}
	names, _ := fenced(t)
	for _, name := range names {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(path); !assert.NoError(t, err, "%s: link %s", name, m[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(path), anchor, "%s: link %s", name, m[1])
		}
	}
}

// TestPagesAreWrapped limits the prose of the pages to 100 columns. Code and tables may be wider.
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
			prose := !strings.HasPrefix(strings.TrimSpace(line), "|") && !strings.HasPrefix(line, "    ") &&
				strings.Contains(strings.TrimSpace(line), " ")
			if prose && len([]rune(line)) > 100 {
				wide++
			}
		}
		assert.Zero(t, wide, "%s: lines of more than 100 columns", name)
	}
}
