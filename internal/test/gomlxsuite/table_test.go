package gomlxsuite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheTableHasCountsAndReasons(t *testing.T) {
	runs := some()
	found := runs.Differences("xla", []string{"8x1"})
	reasons, err := Reasons("8x1\tcore/graph\tTestA/...\tpass->skip\tit needs two.\n")
	require.NoError(t, err)
	part := Table(runs, []string{"core/graph", "ml/nn"}, []Backend{{Name: "xla"}, {Name: "8x1"}}, found, reasons)
	assert.Equal(t, `
| package | xla | 8x1 |
|---|---|---|
| `+"`core/graph`"+` | 2/0/1 | 1/1/1 |
| `+"`ml/nn`"+` | 0/1/0 | 0/1/0 |
| all | 2/1/1 | 1/2/1 |

| package | test | backends | tests | XLA's, ours | why |
|---|---|---|---|---|---|
| `+"`core/graph` | `TestA/...`"+` | 8x1 | 2 | pass, skip | it needs two. |

`, part)

	delete(runs["8x1"], "ml/nn")
	with := Table(runs, []string{"core/graph", "ml/nn"}, []Backend{{Name: "xla"}, {Name: "8x1"}}, found, reasons)
	assert.Contains(t, with, "| `ml/nn` | 0/1/0 | – |\n| all | 2/1/1 | 1/1/1 |\n")
	assert.True(t, Poorer(with, part))
	assert.False(t, Poorer(part, with))
	assert.False(t, Poorer(with, with))
	assert.False(t, Poorer(with, begins+ends), "a page without a table")

	page, err := Replaced("before\n"+begins+"old\n"+ends+"after\n", part)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+begins+part+ends+"after\n", page)
	_, err = Replaced("before\n"+begins+"old\n", part)
	assert.ErrorContains(t, err, "the page lacks the lines")
}
