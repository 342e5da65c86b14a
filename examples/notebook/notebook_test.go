package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/trainertest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

var update = flag.Bool("update", false, "write the program, the outputs and the page anew")

// notebook is a file of Jupyter's, as far as this one goes.
type notebook struct {
	Cells         []*cell `json:"cells"`
	Metadata      any     `json:"metadata"`
	Format        int     `json:"nbformat"`
	FormatOfMinor int     `json:"nbformat_minor"`
}

type cell struct {
	Kind     string         `json:"cell_type"`
	Count    *int           `json:"execution_count,omitempty"`
	ID       string         `json:"id"`
	Metadata map[string]any `json:"metadata"`
	Outputs  *[]output      `json:"outputs,omitempty"`
	Source   []string       `json:"source"`
}

type output struct {
	Name string   `json:"name"`
	Type string   `json:"output_type"`
	Text []string `json:"text"`
}

// body is the code of a cell that is run: what stands behind GoNB's "%%", with which main begins.
func (c *cell) body() (code string, runs bool) {
	return strings.CutPrefix(strings.Join(c.Source, ""), "%%\n")
}

// program is the Go program of the cells: their declarations, and a function for each that is run.
func (n *notebook) program() string {
	var declared, run strings.Builder
	fmt.Fprintln(&declared, "// Command notebook contains the code of the cells of notebook.ipynb. A test generates it from the\n// notebook.\npackage main")
	names := ""
	for i, c := range n.Cells {
		code, runs := c.body()
		switch {
		case c.Kind != "code":
		case runs:
			names += fmt.Sprintf("cell%d, ", i)
			fmt.Fprintf(&run, "\nfunc cell%d() {\n%s\n}\n", i, code)
		default:
			fmt.Fprintf(&declared, "\n%s\n", code)
		}
	}
	return fmt.Sprintf("%s\n// cells are the cells of the notebook that are run.\nvar cells = []func(){%s}\n\nfunc main() {\nfor _, cell := range cells {\ncell()\n}\n}\n%s", &declared, strings.TrimSuffix(names, ", "), &run)
}

// page is the notebook for readers without Jupyter.
func (n *notebook) page() string {
	var page strings.Builder
	page.WriteString("<!-- written from notebook.ipynb by its test -->\n")
	for _, c := range n.Cells {
		code, _ := c.body()
		if c.Kind == "markdown" {
			fmt.Fprintf(&page, "\n%s\n", code)
			continue
		}
		fmt.Fprintf(&page, "\n```go\n%s\n```\n", code)
		for _, o := range *c.Outputs {
			fmt.Fprintf(&page, "\n```text\n%s```\n", strings.Join(o.Text, ""))
		}
	}
	return strings.Replace(page.String(), "\n\n#", "\n#", 1)
}

// TestTheNotebookRuns runs the cells, and holds the program, the outputs and the page to them. Numbers
// differ from machine to machine in their last digits, and are not compared.
func TestTheNotebookRuns(t *testing.T) {
	text, err := os.ReadFile("notebook.ipynb")
	require.NoError(t, err)
	var n notebook
	require.NoError(t, json.Unmarshal(text, &n))
	program, err := format.Source([]byte(n.program()))
	require.NoError(t, err)
	same(t, "main.go", program, func(text []byte) string { return string(text) })

	plugin := plugintest.Path(t, "cpu")
	t.Setenv("TPUSTRATEGY_CPU_PLUGIN", plugin)
	t.Setenv("TMPDIR", t.TempDir())
	next := 0
	for _, c := range n.Cells {
		if _, runs := c.body(); !runs {
			continue
		}
		require.Less(t, next, len(cells), "run the test with -update, and again")
		said := printed(t, cells[next])
		next++
		c.Count, c.Outputs = &next, &[]output{{"stdout", "stream", strings.SplitAfter(said, "\n")}}
		assert.NotEmpty(t, said)
	}
	var now bytes.Buffer
	to := json.NewEncoder(&now)
	to.SetIndent("", " ")
	to.SetEscapeHTML(false)
	require.NoError(t, to.Encode(n))
	numbers := func(text []byte) string { return regexp.MustCompile(`[0-9.]+`).ReplaceAllString(string(text), "0") }
	same(t, "notebook.ipynb", now.Bytes(), numbers)
	same(t, "README.md", []byte(n.page()), numbers)
}

func TestTheFlagsOfTheComputationTakeEffect(t *testing.T) {
	trainertest.CheckFlags(t, func(f *trainer.Flags, rc *strategy.ReplicaContext, images *graph.Node) *graph.Node {
		return logits(rc, images, f.Remat)
	})
}

// same compares a file with what it has to be.
func same(t *testing.T, name string, want []byte, of func([]byte) string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, want, 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, of(want), of(got), "%s: go test ./examples/notebook -update writes it anew", name)
}

// printed returns what a function prints on the standard output.
func printed(t *testing.T, f func()) string {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	said := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		said <- string(text)
	}()
	f()
	os.Stdout = stdout
	require.NoError(t, w.Close())
	return <-said
}
