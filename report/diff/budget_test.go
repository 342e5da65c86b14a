package diff_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/diff"
)

func budgetOf(limits string) string { return `{"version": 1, "slices": {"v5e:2x2": ` + limits + `}}` }

func TestAStepIsHeldToItsBudget(t *testing.T) {
	for limits, want := range map[string]string{
		`{"memory_bytes": 1048576}`: "memory on v5e:2x2: 4.27 MiB, the " +
			"budget is 1.00 MiB (+326.6 %)",
		`{"memory_bytes": 17179869184}`: "",
		`{"predicted_seconds": 0.002}`: "predicted time on v5e:2x2: 3.00 ms, " +
			"the budget is 2.00 ms (+50.0 %)",
		`{"compile_seconds": 1}`: "time to compile on v5e:2x2: 1.20 s, " +
			"the budget is 1.00 s (+19.9 %)",
		`{"collectives": [{"count": 0}]}`: "collectives on v5e:2x2: 2, the " +
			"budget is 0",
		`{"collectives": [{"kind": "all-gather", "count": 0}]}`: "",
		`{"collectives": [{"axis": "replica", "moved_bytes": 1024}]}`: "what a core sends in collectives " +
			"over replica on v5e:2x2: 795.04 KiB, the budget is 1.00 KiB (+79404.3 %)",
		`{"collectives": [{"kind": "all-reduce", "axis": "logical", "count": 1}]}`: "",
		`{"collectives": [{"axis": "slices", "count": 0}]}`:                        "",
	} {
		b, err := diff.ParseBudget([]byte(budgetOf(limits)))
		require.NoError(t, err, limits)
		over, err := b.Check([]*report.Report{slice(t)})
		require.NoError(t, err, limits)
		if want == "" {
			assert.Empty(t, over, limits)
		} else if assert.Len(t, over, 1, limits) {
			assert.Equal(t, want, over[0].Text)
		}
	}
	b, err := diff.ParseBudget([]byte(budgetOf(`{"memory_bytes": 1048576, "predicted_seconds": 1}`)))
	require.NoError(t, err)
	r := slice(t)
	r.Memory, r.Predicted = report.Memory{Refused: true, Verdict: report.TooLarge}, nil
	over, err := b.Check([]*report.Report{r})
	require.NoError(t, err)
	assert.Equal(t, "memory on v5e:2x2: the compiler refused the step as too large", over[0].Text)
}

func TestABudgetThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "ends before the end",
		"[]":                               "cannot unmarshal array",
		`{"version": 2}`:                   "its version is 2",
		`{"version": 1, "slices": {}}`:     "it has no slices",
		`{"version": 1, "slice": {}}`:      `unknown field "slice"`,
		budgetOf(`{}`):                     "it has no limit",
		budgetOf(`{"memory": 1}`):          `unknown field "memory"`,
		budgetOf(`{"memory_bytes": -1}`):   "memory_bytes is -1",
		budgetOf(`{"memory_bytes": 9e99}`): "cannot unmarshal number",
		budgetOf(`{"memory_bytes": 9007199254740992}`):                           "memory_bytes is 9007199254740992",
		budgetOf(`{"predicted_seconds": 0}`):                                     "predicted_seconds is 0",
		budgetOf(`{"compile_seconds": 1e12}`):                                    "compile_seconds is 1e+12",
		budgetOf(`{"collectives": [{"kind": "all-reduces", "count": 1}]}`):       `no collectives are of kind "all-reduces"`,
		budgetOf(`{"collectives": [{"axis": "replica"}]}`):                       "has no figure",
		budgetOf(`{"collectives": [{"count": -3}]}`):                             "count is -3",
		budgetOf(`{"collectives": [{"moved_bytes": -3}]}`):                       "moved_bytes is -3",
		budgetOf(`{"collectives": [{"count": 1}, {"moved_bytes": 1}]}`):          "two limits",
		budgetOf(`{"memory_bytes": 1}`) + "{}":                                   "text after the JSON value",
		budgetOf(`{"memory_bytes": 1, "memory_bytes": 2}`):                       `"memory_bytes" is duplicate`,
		budgetOf(`{"memory_bytes": 1, "Memory_Bytes": 2}`):                       "differ only in letter case",
		strings.Replace(budgetOf(`{"memory_bytes": 1}`), "{\"v5e", "{\"\x1b", 1): "invalid character",
	} {
		_, err := diff.ParseBudget([]byte(text))
		require.ErrorIs(t, err, diff.ErrBudget, text)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		assert.ErrorContains(t, err, want)
	}
}

func TestABudgetThatAStepCannotBeHeldToIsRefused(t *testing.T) {
	r := slice(t)
	r.Predicted, r.CompilingSeconds = nil, 0
	for limits, want := range map[string]string{
		`{"predicted_seconds": 1}`: "budget v5e:2x2: its report has no predicted time; leave " +
			"predicted_seconds out for it",
		`{"compile_seconds": 1}`:                           "its report has no time to compile",
		`{"collectives": [{"axis": "modle", "count": 1}]}`: `the step has no axis "modle"; its axes are replica, logical`,
	} {
		b, err := diff.ParseBudget([]byte(budgetOf(limits)))
		require.NoError(t, err)
		_, err = b.Check([]*report.Report{r})
		require.ErrorIs(t, err, diff.ErrBudget)
		assert.ErrorContains(t, err, want)
	}
	b, err := diff.ParseBudget([]byte(`{"version": 1, "slices": {"v5p:2x2x2": {"memory_bytes": 1}}}`))
	require.NoError(t, err)
	_, err = b.Check([]*report.Report{r})
	assert.EqualError(t, err,
		"budget v5p:2x2x2: there is no report of it, but of v5e:2x2; leave the slice out, or compile the step for it")
}

func TestWhatCannotBeComparedIsSaid(t *testing.T) {
	before, after := slice(t), slice(t)
	after.Predicted, after.Target.Platform = nil, "libtpu 2"
	d, err := diff.Reports(before, after, diff.Tolerance{})
	require.NoError(t, err)
	assert.Equal(t, []string{"compiled by libtpu 2, was cpu",
		"predicted time is not compared: only one of the reports has it"}, d.Notes)
	for _, share := range []float64{-1, 1e9} {
		_, err = diff.Reports(before, after, diff.Tolerance{Share: share})
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	_, err = diff.Reports(nil, after, diff.Tolerance{})
	assert.Error(t, err)
}

// Names are untrusted text.
func TestNamesAreNoMarks(t *testing.T) {
	before, after := slice(t), slice(t)
	before.Tensors[2].Name, after.Tensors[2].Name = "/a|b_c\x1b[2J\n# *d*<e>", "/a|b_c\x1b[2J\n# *d*<e>"
	after.Tensors[2].Donated = false
	d, err := diff.Reports(before, after, diff.Tolerance{})
	require.NoError(t, err)
	result := diff.Result{Slices: []*diff.Diff{d}, Over: []diff.Change{{Verdict: diff.Worse, Text: "x"}}}
	assert.Equal(t, "1 worse, 1 over the budget", result.Worse())
	var text, marked bytes.Buffer
	require.NoError(t, errors.Join(result.WriteText(&text), result.WriteMarkdown(&marked)))
	assert.Equal(t, "digits on v5e:2x2: 2 replicas of 2 logical devices\n"+
		"  worse   variable /a|b_c\\u001b[2J # *d*<e> Float32[784 512] is no longer donated: its next value needs 784.00 "+
		"KiB more per core\n"+
		"over the budget\n  worse   x\n", text.String())
	assert.Equal(t, "**digits on v5e:2x2: 2 replicas of 2 logical devices**\n\n"+
		"- **worse**: variable /a\\|b\\_c\\\\u001b\\[2J \\# \\*d\\*&lt;e> Float32\\[784 512] is no longer donated: its "+
		"next value needs 784.00 KiB more per core\n"+
		"\n**over the budget**\n\n- **worse**: x\n", marked.String())
}

func FuzzReportsAndBudget(f *testing.F) {
	f.Add([]byte(`{"version":2,"replicas":1,"logical_devices":1,"target":{"name":"v5e:2x2"}}`),
		[]byte(budgetOf(`{"memory_bytes": 1, "collectives": [{"count": 1}]}`)))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		if b, err := diff.ParseBudget(two); err == nil {
			_, _ = b.Check([]*report.Report{slice(t)})
		}
		r, err := report.Parse(one)
		if err != nil {
			return
		}
		for _, pair := range [][2]*report.Report{{r, slice(t)}, {slice(t), r}, {r, r}} {
			d, err := diff.Reports(pair[0], pair[1], diff.Tolerance{})
			require.NoError(t, err)
			_, err = json.Marshal(d)
			require.NoError(t, err)
			require.NoError(t, (&diff.Result{Slices: []*diff.Diff{d}}).WriteMarkdown(&bytes.Buffer{}))
		}
	})
}
