package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/report"
)

func TestWhatDoesNotFitSaysByHowMuchAndWhatToTry(t *testing.T) {
	advice := func(c *compileCmd, o ahead.Outcome) string {
		c.advise(&o)
		return o.Error.Message
	}
	tooLarge := func(needs, limit int64) ahead.Outcome {
		return ahead.Outcome{Error: &failure{Sort: "memory"}, Report: &report.Report{Replicas: 2, Memory: report.Memory{Needs: needs, Limit: limit, Refused: true}}}
	}
	gpt := &compileCmd{stepOptions: stepOptions{Example: "gpt", Logical: 2, Precision: "default"}}
	assert.Equal(t, "; 13.50 GiB too much: try --shard-state parameters, --remat full, --precision bf16, --logical 4, a smaller --batch, or a larger slice",
		advice(gpt, tooLarge(29<<30+1<<29, 16<<30)))
	gpt.ShardState, gpt.Remat, gpt.Precision, gpt.Batch = "parameters", "full", "bf16", 8
	large := tooLarge(1<<40, 16<<30)
	assert.Equal(t, "; 1008.00 GiB too much: try --logical 4, --batch 4, or a larger slice", advice(gpt, large))
	assert.Equal(t, []string{"--logical 4", "--batch 4", "a larger slice"}, large.Report.Suggestions)
	assert.Equal(t, map[string]string{"example": "gpt", "logical": "2", "precision": "bf16", "shard-state": "parameters", "remat": "full", "batch": "8"}, gpt.options())
	gpt.Batch = 6 // of which two replicas cannot share a half
	assert.Equal(t, "; try --logical 4, a smaller --batch, or a larger slice", advice(gpt, tooLarge(0, 0)))
	gpt.Batch = 2
	assert.Equal(t, "; try --logical 4, or a larger slice", advice(gpt, tooLarge(0, 0)))
	gpt.Batch = 1
	assert.Equal(t, "; try --logical 4, or a larger slice", advice(gpt, tooLarge(0, 0)))
	assert.Equal(t, "; try --logical 4, or a larger slice", advice(gpt, ahead.Outcome{Error: &failure{Sort: "memory"}}))
	assert.Empty(t, advice(gpt, ahead.Outcome{Error: &failure{Sort: "usage"}}))
	assert.Empty(t, advice(&compileCmd{File: "x.mlir"}, tooLarge(2, 1)))
	fits := ahead.Outcome{Report: &report.Report{}}
	gpt.advise(&fits)
	assert.Empty(t, fits.Report.Suggestions)
}
