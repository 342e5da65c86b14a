package main

import (
	"cmp"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// gptModel is the example "gpt", the language model of examples/gpt.
var gptModel = exampleModel{
	name: "gpt", about: "the language model of examples/gpt, at the size of --preset",
	size: modelSize{Preset: "tiny"}, sized: true,
	rules: func(int) logical.Rules { return decoder.Rules() },
	loss: func(size modelSize) train.Loss {
		c, _ := gptConfig(size) // the preset has been checked
		return c.Loss
	},
	batch: func(size modelSize, rows int) []shapes.Shape {
		c, _ := gptConfig(size)
		if rows == 0 {
			rows = c.Batch // the preset's batch is over all replicas
		}
		return []shapes.Shape{shapes.Make(dtypes.Int32, rows, c.Sequence+1)}
	},
	checkFit: func(size modelSize, replicas, p int) error {
		c, err := gptConfig(size)
		if err != nil {
			return err
		}
		return c.Validate(replicas, p, 1)
	},
}

// gptConfig returns the decoder configuration of the preset, modified by the other fields of size.
func gptConfig(size modelSize) (decoder.Config, error) {
	c, err := decoder.Preset(size.Preset)
	if err == nil {
		c.Remat, err = remat.ParsePolicy(cmp.Or(size.Remat, "none"))
	}
	c.ShardByTokens = size.Tokens
	if size.Batch > 0 {
		c.Batch = size.Batch
	}
	return c, err
}
