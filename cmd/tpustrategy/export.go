package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

type exportCmd struct {
	Place string `arg:"" help:"The folder of a run or of its checkpoints, or its URL such as gs://bucket/run."`
	File  string `arg:"" help:"The safetensors file to write." type:"localpath"`
	Step  int64  `help:"The step to export; -1 is the last one." default:"-1"`
	All   bool   `help:"Write the optimizer's state and the run's own counters, too."`
}

// Help is the text under --help.
func (exportCmd) Help() string {
	return `Writes the model of a checkpoint, of which each host saved its own shards, as one safetensors file.
Every byte is compared with its checksum on the way.

Examples:
  tpustrategy export run/checkpoints model.safetensors
  tpustrategy export run model.safetensors --all
  tpustrategy export gs://bucket/run model.safetensors --step 1000`
}

// exportAnswer is the answer to export.
type exportAnswer struct {
	Step  int64  `json:"step"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	// Variables is the number of written variables, and LeftOut the number of omitted variables of
	// the optimizer and of the run.
	Variables int `json:"variables"`
	LeftOut   int `json:"left_out"`
}

// Run exports a checkpoint.
func (c *exportCmd) Run(ctx context.Context, a *app, root *cli) (err error) {
	if err := there("export", "give the folder of the run's checkpoints", c.Place); err != nil {
		return err
	}
	m, steps, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var from *checkpoint.Checkpoint
	switch {
	case c.Step < 0:
		from, err = m.Latest(ctx)
	case !slices.Contains(steps, c.Step):
		return misused("export", "take one of those", "%s has no step %d; it has %s", m.Dir(), c.Step, numbers(steps))
	default:
		from, err = m.Open(ctx, c.Step)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.Export(ctx, c.File, checkpoint.ExportOptions{All: c.All}); err != nil {
		return err
	}
	info, err := os.Stat(c.File)
	if err != nil {
		return err
	}
	answer := exportAnswer{from.Step(), c.File, info.Size(), len(from.Variables()), 0}
	if !c.All {
		answer.Variables = len(from.Weights())
		answer.LeftOut = len(from.Variables()) - answer.Variables
	}
	if root.JSON {
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintf(a.stdout, "step %d  %s: %d variables, %d bytes\n", answer.Step, answer.File, answer.Variables, answer.Bytes)
	if err == nil && answer.LeftOut > 0 {
		_, err = fmt.Fprintf(a.stdout, "%d variables of the optimizer and of the run are left out; --all writes them\n", answer.LeftOut)
	}
	return err
}

// open opens the place or, if it has no steps, the folder of checkpoints that package trainer
// creates in it.
func (c *exportCmd) open(ctx context.Context) (*checkpoint.Manager, []int64, error) {
	open := func(place string) (*checkpoint.Manager, []int64, error) {
		m, err := checkpoint.OpenManager(ctx, place, checkpoint.ManagerOptions{})
		if err != nil {
			return nil, nil, refused("export", err)
		}
		steps, err := m.Steps(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, m.Close())
		}
		return m, steps, nil
	}
	m, steps, err := open(c.Place)
	inner := strings.TrimRight(c.Place, "/") + "/checkpoints"
	if err != nil || len(steps) > 0 || there("export", "", inner) != nil {
		return m, steps, err
	}
	if err := m.Close(); err != nil {
		return nil, nil, err
	}
	return open(inner)
}

// numbers formats steps. It shortens long lists to the first and the last steps.
func numbers(steps []int64) string {
	words := strings.Fields(strings.Trim(fmt.Sprint(steps), "[]"))
	if len(words) > 12 {
		words = slices.Concat(words[:6], []string{"..."}, words[len(words)-5:])
	}
	return strings.Join(words, ", ")
}
