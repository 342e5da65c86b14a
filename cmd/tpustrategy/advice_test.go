package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
)

func TestWhatDoesNotFitSaysByHowMuchAndWhatToTry(t *testing.T) {
	tooLarge := func(used, limit string) ahead.Outcome {
		return ahead.Outcome{Error: &failure{Sort: "memory", Memory: &ahead.MemoryFailure{Used: used, Limit: limit}}}
	}
	gpt := &compileCmd{Example: "gpt", Logical: 2, Precision: "default"}
	assert.Equal(t, "; 13.52G too much: try --shard-state parameters, --remat full, --precision bf16, --logical 4, a smaller --batch, or a larger slice",
		gpt.advice(tooLarge("29.27G", "15.75G")))
	gpt.ShardState, gpt.Remat, gpt.Precision, gpt.Batch = "parameters", "full", "bf16", 8
	assert.Equal(t, "; 1008.25G too much: try --logical 4, --batch 4, or a larger slice", gpt.advice(tooLarge("1.00T", "15.75G")))
	gpt.Batch = 1
	assert.Equal(t, "; try --logical 4, or a larger slice", gpt.advice(tooLarge("", "")))
	assert.Equal(t, "; try --logical 4, or a larger slice", gpt.advice(ahead.Outcome{Error: &failure{Sort: "memory"}}))
	dense := &compileCmd{Example: "dense", Logical: 1}
	assert.Equal(t, "; 1.50G too much: try --shard-state parameters, --logical 2, a smaller --batch, or a larger slice",
		dense.advice(ahead.Outcome{Error: &failure{Sort: "memory", Memory: &ahead.MemoryFailure{Excess: "1.50G"}}}))
	assert.Empty(t, dense.advice(ahead.Outcome{}))
	assert.Empty(t, dense.advice(ahead.Outcome{Error: &failure{Sort: "usage"}}))
	assert.Empty(t, (&compileCmd{File: "x.mlir"}).advice(tooLarge("2G", "1G")))
}
