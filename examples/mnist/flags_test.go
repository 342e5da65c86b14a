package main

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/test/trainertest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestTheFlagsOfTheComputationTakeEffect(t *testing.T) {
	trainertest.CheckFlags(t, func(f *trainer.Flags, rc *strategy.ReplicaContext, images *graph.Node) *graph.Node {
		return logits(rc, images, f.Remat)
	})
}
