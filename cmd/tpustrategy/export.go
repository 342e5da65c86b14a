package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

type exportCmd struct {
	Place  string `arg:"" help:"Folder of a run or of its checkpoints, or its URL such as gs://bucket/run."`
	Output string `short:"o" help:"Safetensors file to write." default:"model.safetensors" type:"localpath"`
	Step   int64  `help:"Step to export; -1 is the last one." default:"-1"`
	All    bool   `help:"Also write the state of the optimizer and the counters of the run."`
}

func (exportCmd) Help() string {
	return `Writes the model of a sharded checkpoint as one safetensors file, and verifies the checksum of every byte.

Examples:
  tpustrategy export run/checkpoints
  tpustrategy export run -o model.safetensors --all
  tpustrategy export gs://bucket/run -o model.safetensors --step 1000`
}

// exportAnswer is the JSON output of the export command.
type exportAnswer struct {
	Step  int64  `json:"step"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	// Variables is the number of exported variables. LeftOut is the number of omitted variables,
	// which belong to the optimizer or to the run.
	Variables int `json:"variables"`
	LeftOut   int `json:"left_out"`
}

func (c *exportCmd) Run(ctx context.Context, a *app, root *cli) (err error) {
	if err := checkFolder("export", "give the folder of the run's checkpoints", c.Place); err != nil {
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
		return usageErrorf("export", "give one of these steps", "%s has no step %d; it has %s", m.Dir(), c.Step,
			formatSteps(steps))
	default:
		from, err = m.Open(ctx, c.Step)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.Export(ctx, c.Output, checkpoint.ExportOptions{All: c.All}); err != nil {
		return err
	}
	info, err := os.Stat(c.Output)
	if err != nil {
		return err
	}
	answer := exportAnswer{from.Step(), c.Output, info.Size(), len(from.Variables()), 0}
	if !c.All {
		answer.Variables = len(from.Weights())
		answer.LeftOut = len(from.Variables()) - answer.Variables
	}
	if root.JSON {
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintf(a.stdout, "step %d: %d variables, %s\n", answer.Step, answer.Variables, units.Bytes(answer.Bytes))
	if err == nil && answer.LeftOut > 0 {
		_, err = fmt.Fprintf(a.stdout, "%d variables of the optimizer and of the run are omitted; --all writes them\n",
			answer.LeftOut)
	}
	a.printWrittenFiles(c.Output)
	return err
}

// open opens the checkpoints in c.Place. If there are none, it tries the subfolder checkpoints,
// which package trainer creates. It also returns the steps of the checkpoints.
func (c *exportCmd) open(ctx context.Context) (*checkpoint.Manager, []int64, error) {
	open := func(place string) (*checkpoint.Manager, []int64, error) {
		m, err := checkpoint.OpenManager(ctx, place, checkpoint.ManagerOptions{})
		if err != nil {
			return nil, nil, newUsageError("export", err)
		}
		steps, err := m.Steps(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, m.Close())
		}
		return m, steps, nil
	}
	m, steps, err := open(c.Place)
	inner := strings.TrimRight(c.Place, "/") + "/checkpoints"
	if err != nil || len(steps) > 0 || checkFolder("export", "", inner) != nil {
		return m, steps, err
	}
	if err := m.Close(); err != nil {
		return nil, nil, err
	}
	return open(inner)
}

// formatSteps formats a list of steps. A long list is shortened to its first and last steps.
func formatSteps(steps []int64) string {
	words := strings.Fields(strings.Trim(fmt.Sprint(steps), "[]"))
	if len(words) > 12 {
		words = slices.Concat(words[:6], []string{"..."}, words[len(words)-5:])
	}
	return strings.Join(words, ", ")
}
