package gomlxsuite

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func results(outcomes map[string]Outcome) Results {
	r := Results{Tests: map[string]Test{}}
	for name, o := range outcomes {
		r.Tests[name] = Test{Outcome: o}
	}
	return r
}

// some returns results with three differences in two packages: a test that is skipped before its
// subtest, a test that fails, and a subtest that runs on one backend only.
func some() Runs {
	return Runs{
		"xla": {
			"core/graph": results(map[string]Outcome{"TestA": Pass, "TestA/one": Pass, "TestB": Pass, "TestC": Skip}),
			"ml/nn":      results(map[string]Outcome{"TestD": Fail}),
		},
		"8x1": {
			"core/graph": results(map[string]Outcome{"TestA": Skip, "TestB": Fail, "TestC": Pass, "TestC/more": Pass}),
			"ml/nn":      results(map[string]Outcome{"TestD": Fail}),
		},
	}
}

func TestADifferenceNeedsAReasonOfItsOwn(t *testing.T) {
	found := some().Differences("xla", []string{"8x1"})
	require.Equal(t, []Difference{
		{"8x1", "core/graph", "TestA", Pass, Skip},
		{"8x1", "core/graph", "TestA/one", Pass, None},
		{"8x1", "core/graph", "TestB", Pass, Fail},
		{"8x1", "core/graph", "TestC", Skip, Pass},
		{"8x1", "core/graph", "TestC/more", None, Pass},
	}, found)

	reasons, err := Reasons("# comment\n\n" +
		"8x1\tcore/graph\tTestA/...\tpass->skip\tit needs two.\n" +
		"4x2\tcore/graph\tTestB\tpass->fail\tanother backend.\n" +
		"*\tcore/graph\tTestB\tpass->skip\tanother outcome.\n" +
		"*\tcore/graph\tTestC/...\tskip->pass\tmore dtypes.\n")
	require.NoError(t, err)
	left, idle := Unexplained(found, reasons)
	assert.Equal(t, []Difference{{"8x1", "core/graph", "TestB", Pass, Fail}}, left)
	assert.Equal(t, []Reason{reasons[1], reasons[2]}, idle)

	// Without "/...", the reason does not apply to subtests.
	reasons[0].Test = "TestA"
	left, _ = Unexplained(found, reasons)
	assert.Contains(t, left, Difference{"8x1", "core/graph", "TestA/one", Pass, None})
	// A reason for a skipped test does not explain a failed subtest.
	assert.False(t, Reason{Package: "p", Test: "TestA/...", Theirs: Pass, Ours: Skip}.Explains(Difference{"8x1", "p",
		"TestA/one", Pass, Fail}))
}

func TestLinesOfReasonsAreWhole(t *testing.T) {
	for line, says := range map[string]string{
		"8x1\tcore/graph\tTestA\tpass->skip\n":      "differences.tsv:1: 4 fields",
		"\n8x1\tcore/graph\tTestA\tpass\twhy\n":     "differences.tsv:2: want outcomes",
		"8x1\tcore/graph\tTestA\tpass->skip\t\n":    "and why",
		"8x1 core/graph TestA pass->skip because\n": "1 fields",
	} {
		_, err := Reasons(line)
		assert.ErrorContains(t, err, says, line)
	}
	text, err := os.ReadFile("differences.tsv")
	require.NoError(t, err)
	_, err = Reasons(string(text))
	assert.NoError(t, err)
}
