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

// moreFolders are the packages that the other pages name.
var moreFolders = map[string]string{
	"checkpoint": "strategy/checkpoint", "report": "report", "job": "examples/digits/job",
	"pjrt": "pjrt", "cache": "pjrt/cache", "keyvalue": "pjrt/keyvalue", "leaktest": "pjrt/leaktest", "lowering": "lowering", "backend": "lowering/backend",
	"loop": "loop", "remat": "remat", "watchdog": "strategy/watchdog",
	"tpuapi": "cluster_resolver/tpuapi", "simhost": "internal/simhost", "prochost": "internal/prochost", "gomlxdata": "input/gomlxdata",
	"manual": "manual", "moe": "manual/moe", "pipeline": "manual/pipeline", "ring": "manual/ring",
}

var (
	codeOf = regexp.MustCompile("(?s)```go\n(.*?)```|`([^`\n]+)`")
	// theirs is the first cell of a row: TensorFlow's names, in from-tensorflow.md.
	theirs    = regexp.MustCompile(`(?m)^\| [^|]*\|`)
	qualified = regexp.MustCompile(`\b([a-z0-9]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
)

// namesIn are the names of this module's packages in the code of a page.
func namesIn(page string, of code) (names []string) {
	for _, m := range codeOf.FindAllStringSubmatch(page, -1) {
		for _, q := range qualified.FindAllStringSubmatch(m[1]+m[2], -1) {
			if of[q[1]] != nil {
				names = append(names, q[1]+"."+q[2])
			}
		}
	}
	return names
}

func TestEveryNameOfThePagesExists(t *testing.T) {
	c := code{}
	for _, list := range []map[string]string{folders, moreFolders} {
		for name, folder := range list {
			c[name] = parse(t, folder)
		}
	}
	require.Equal(t, []string{"feed.New", "strategy.Nothing", "input.Options.Policy"},
		namesIn("`feed.New(ctx)` feed.Never\n```go\nx := strategy.Nothing{graph.Node, input.Options.Policy}\n```", c))

	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	examples, err := filepath.Glob("../examples/*/README.md")
	require.NoError(t, err)
	pages = append(append(pages, "../README.md"), examples...)
	found := 0
	for _, name := range pages {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		if name == "from-tensorflow.md" {
			page = theirs.ReplaceAll(page, nil)
		}
		for _, full := range namesIn(string(page), c) {
			found++
			in, what, _ := strings.Cut(full, ".")
			assert.True(t, c.has(full) || c[in].tests[what], "%s: %s is not declared", name, full)
		}
	}
	require.Greater(t, found, 100)
}
