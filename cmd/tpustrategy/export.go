package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

type exportCmd struct {
	Place string `arg:"" help:"The folder of the run's checkpoints, or its URL such as gs://bucket/run."`
	File  string `arg:"" help:"The safetensors file to write." type:"localpath"`
	Step  int64  `help:"The step to export; -1 is the last one." default:"-1"`
}

// Help is the text under --help.
func (exportCmd) Help() string {
	return `Writes the variables of a checkpoint, of which each host saved its own shards, as one safetensors
file. Every byte is compared with its checksum on the way.

Examples:
  tpustrategy export run/checkpoints model.safetensors
  tpustrategy export gs://bucket/run model.safetensors --step 1000`
}

// exported is the answer to export.
type exported struct {
	Step  int64  `json:"step"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// Run exports a checkpoint.
func (c *exportCmd) Run(ctx context.Context, a *app, root *cli) (err error) {
	if err := there("export", "give the folder of the run's checkpoints", c.Place); err != nil {
		return err
	}
	m, err := checkpoint.OpenManager(ctx, c.Place, checkpoint.ManagerOptions{})
	if err != nil {
		return refused("export", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var from *checkpoint.Checkpoint
	if c.Step < 0 {
		from, err = m.Latest(ctx)
	} else {
		from, err = m.Open(ctx, c.Step)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.Export(ctx, c.File); err != nil {
		return err
	}
	info, err := os.Stat(c.File)
	if err != nil {
		return err
	}
	answer := exported{from.Step(), c.File, info.Size()}
	if root.JSON {
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintf(a.stdout, "step %d  %s, %d bytes\n", answer.Step, answer.File, answer.Bytes)
	return err
}
