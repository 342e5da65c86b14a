package gomlxexamples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageHasARowForEachProgram(t *testing.T) {
	columns := []devices{{name: "1"}, {name: "8 x 1"}}
	rows := []row{
		{program: program{name: "a/demo, cnn", main: "a/demo", steps: 100, bar: true, resumed: 5, tolerance: 1e-3,
			why: "reasons" + strings.Repeat(" word", 40)},
			From: 2, To: 0.5, Cells: []cell{{}, {Apart: 2e-6, Variables: 3}}},
		{program: program{name: "b", main: "b"}, Cells: []cell{{}, {}}},
	}
	text := page(versions{"v1", "v2"}, columns, rows)
	assert.Contains(t, text,
		"| program | steps | loss | 8 x 1 | bar | plots | restart |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	assert.Contains(t, text, "| `a/demo`, cnn | 100 | 2 to 0.5 | 2.0e-06, 3 split | yes |  | yes |\n")
	assert.Contains(t, text, "| `b` |  |  | same text |  |  |  |\n")
	assert.Contains(t, text, "1 rows are of programs that train; 1 are of programs that only print")
	assert.Contains(t, text, "The limit for `a/demo, cnn` is 1e-03, because reasons word")
	assert.Contains(t, text, "examples` v1, built")
	assert.Contains(t, text, "with GoMLX v2.")
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "|") {
			assert.LessOrEqual(t, len(line), 101, line)
		}
	}
}

func TestWhatPassedIsKept(t *testing.T) {
	b := &built{dir: t.TempDir()}
	p := program{name: "one", main: "one", steps: 3}
	rows, err := b.kept([]program{p})
	require.NoError(t, err)
	assert.Empty(t, rows)
	require.NoError(t, b.keep(row{program: p, From: 2, To: 1, Cells: []cell{{}, {Apart: 0.5, Rate: 7}}}))
	rows, err = b.kept([]program{{name: "other"}, p})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, "one", rows[0].name)
	assert.Equal(t, []cell{{}, {Apart: 0.5, Rate: 7}}, rows[0].Cells)

	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "results", "one.json"), []byte("{"), 0o644))
	_, err = b.kept([]program{p})
	assert.Error(t, err)
}
