package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/report"
)

func TestWhatDoesNotFitSaysByHowMuchAndWhatToTry(t *testing.T) {
	advice := func(c *compileCmd, o ahead.Outcome) string {
		c.addSuggestions(&o)
		return o.Error.Message
	}
	tooLarge := func(replicas, devices int, needs, limit int64) ahead.Outcome {
		return ahead.Outcome{Error: &failure{Category: "memory"},
			Report: &report.Report{Replicas: replicas, Target: report.Target{Devices: devices},
				Memory: report.Memory{Needs: needs, Limit: limit, Refused: true}}}
	}
	gpt := &compileCmd{stepOptions: stepOptions{Example: "gpt", Preset: "tiny", Logical: 2, Precision: "default"}}
	assert.Equal(t, "; 13.50 GiB too much: try --shard-state parameters, --remat full, --precision bf16, --logical 4, "+
		"--batch 8, or a larger slice",
		advice(gpt, tooLarge(2, 4, 29<<30+1<<29, 16<<30)))
	gpt.ShardState, gpt.Remat, gpt.Precision, gpt.Batch = "parameters", "full", "bf16", 8
	large := tooLarge(2, 4, 1<<40, 16<<30)
	assert.Equal(t, "; 1008.00 GiB too much: try --logical 4, --batch 4, or a larger slice", advice(gpt, large))
	assert.Equal(t, []string{"--logical 4", "--batch 4", "a larger slice"}, large.Report.Suggestions)
	assert.Equal(t, map[string]string{"example": "gpt", "preset": "tiny", "logical": "2", "precision": "bf16",
		"shard-state": "parameters", "remat": "full", "batch": "8"}, gpt.flagValues())
	gpt.Batch = 6 // two replicas cannot share three rows
	assert.Equal(t, "; try --logical 4, --batch 2, or a larger slice", advice(gpt, tooLarge(2, 4, 0, 0)))
	gpt.Batch = 2 // a row for each replica
	assert.Equal(t, "; try --logical 4, or a larger slice", advice(gpt, tooLarge(2, 4, 0, 0)))
	assert.Equal(t, "; try --batch 1, or a larger slice", advice(gpt, tooLarge(1, 2, 0, 0)), "there are no more devices")
	gpt.Batch, gpt.Logical = 16, 4
	assert.Equal(t, "; try a larger slice", advice(gpt, tooLarge(16, 64, 0, 0)),
		"four heads cannot be split over eight devices")
	gpt.Batch, gpt.Logical = 1, 2
	assert.Equal(t, "; try --logical 4, or a larger slice",
		advice(gpt, ahead.Outcome{Error: &failure{Category: "memory"}}))
	digits := &compileCmd{stepOptions: stepOptions{Example: "digits", Logical: 1, Precision: "default", Whole: true}}
	assert.Equal(t, "; try --shard-state parameters, --precision bf16, --logical 2, --batch 256, or a larger slice",
		advice(digits, tooLarge(4, 4, 0, 0)))
	digits.Logical = 2
	assert.Contains(t, advice(digits, tooLarge(2, 4, 0, 0)), "no --whole")
	assert.Empty(t, advice(gpt, ahead.Outcome{Error: &failure{Category: "usage"}}))
	assert.Empty(t, advice(&compileCmd{File: "x.mlir"}, tooLarge(2, 4, 2, 1)))
	fits := ahead.Outcome{Report: &report.Report{}}
	gpt.addSuggestions(&fits)
	assert.Empty(t, fits.Report.Suggestions)
}
