package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/diff"
)

type diffCmd struct {
	Before    string   `arg:"" optional:"" help:"Report of the step, or of the earlier one of two, as JSON from compile -o or --json. With --plugin: a StableHLO file." type:"localpath"`
	After     string   `arg:"" optional:"" help:"Report of the later step. It may be omitted with --budget." type:"localpath"`
	Budget    string   `help:"File with limits. The step, or the later one of two, must not exceed them." type:"localpath"`
	Markdown  bool     `help:"Print Markdown, for a pull request."`
	Tolerance float64  `help:"Relative change of a figure that is ignored." default:"0.01"`
	Plugin    []string `help:"Compile the step with two plugins and compare the results. Give the flag twice, the old plugin first." type:"localpath"`
	Topology  []string `help:"Slice to compile for with --plugin. Several are separated by commas."`
	Cache     string   `help:"With --plugin: folder for compiled programs, so that each plugin compiles a step once, or none. Default: the user's cache directory." type:"localpath"`
	stepOptions
}

func (diffCmd) Help() string {
	return `Compares two compiled steps: memory, donation, collectives, dtypes, operations and predicted time. It can also check a step against the limits in a budget file. It runs nothing and needs no TPU.

Examples:
  tpustrategy diff before.json after.json
  tpustrategy diff before.json after.json --budget budget.json --markdown
  tpustrategy diff --budget budget.json step.json
  tpustrategy diff --plugin old/libtpu.so --plugin new/libtpu.so --example digits --topology v5e:2x4 --logical 2

Exit code 6: a figure is worse, or exceeds the budget.`
}

func (c *diffCmd) Run(ctx context.Context, a *app, root *cli) error {
	var budget *diff.Budget
	if c.Budget != "" {
		data, err := files.ReadFile(c.Budget, 1<<20)
		if err != nil {
			return newUsageError("diff: --budget", err)
		}
		if budget, err = diff.ParseBudget(data); err != nil {
			return newUsageError("diff: --budget", err)
		}
	}
	sides, err := c.loadReports(ctx, a, root)
	if err != nil {
		return err
	}
	result := diff.Result{Slices: []*diff.Diff{}, Over: []diff.Change{}}
	if len(sides) == 2 {
		if result.Slices, err = c.compare(sides[0], sides[1]); err != nil {
			return err
		}
	}
	if budget != nil {
		if result.Over, err = budget.Check(sides[len(sides)-1]); err != nil {
			return newUsageError("diff", err)
		}
	}
	show := result.WriteText
	if c.Markdown {
		show = result.WriteMarkdown
	}
	if root.JSON {
		err = a.printJSON(&result)
	} else {
		err = show(a.stdout)
	}
	if worse := result.Worse(); err == nil && worse != "" {
		return &failure{Category: "findings", Message: "diff: " + worse, Reported: true}
	}
	return err
}

// loadReports returns the reports of the old step, and the reports of the new step unless only a
// budget is checked.
func (c *diffCmd) loadReports(ctx context.Context, a *app, root *cli) (sides [][]*report.Report, err error) {
	switch {
	case c.Markdown && root.JSON:
		return nil, usageErrorf("diff", "give one of them", "--markdown and --json")
	case len(c.Plugin) > 0:
		return c.compileReports(ctx, a)
	case c.Topology != nil || c.Example != "":
		return nil, usageErrorf("diff", "give --plugin twice", "--example and --topology without plugins")
	case c.Before == "" || c.After == "" && c.Budget == "":
		return nil, usageErrorf("diff", "give the reports of two steps, or one and --budget", "nothing to compare with")
	}
	for _, file := range []string{c.Before, c.After} {
		if file == "" {
			continue
		}
		side, err := readReports(file)
		if err != nil {
			return nil, err
		}
		sides = append(sides, side)
	}
	return sides, nil
}

// readReports reads a file that contains one report, or the output of compile --json with several
// reports.
func readReports(file string) (all []*report.Report, err error) {
	data, err := files.ReadFile(file, maxReport)
	if err != nil {
		return nil, newUsageError("diff", err)
	}
	parts := []json.RawMessage{data}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		var outcomes []struct {
			Report json.RawMessage
			Error  *failure
		}
		if err := json.Unmarshal(data, &outcomes); err != nil {
			return nil, newUsageError(file, &errkind.Fault{Match: report.ErrFormat, Err: err})
		}
		parts = nil
		for _, o := range outcomes {
			if o.Report == nil && o.Error != nil {
				return nil, newUsageError(file, o.Error)
			}
			parts = append(parts, o.Report)
		}
	}
	seen := map[string]bool{}
	for _, part := range parts {
		r, err := report.Parse(part)
		if err != nil {
			return nil, newUsageError(file, err)
		}
		slice := diff.SliceOf(r)
		if seen[slice] {
			return nil, usageErrorf(file, "give one for each slice", "two reports of %s", slice)
		}
		seen[slice] = true
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, usageErrorf(file, "give the answer of compile --json, or a file of its -o", "there is no report in it")
	}
	return all, nil
}

// compileReports compiles the step for each slice, once with the old plugin and once with the new
// one, in child processes.
func (c *diffCmd) compileReports(ctx context.Context, a *app) (sides [][]*report.Report, err error) {
	switch {
	case len(c.Plugin) != 2:
		return nil, usageErrorf("diff", "give --plugin twice, the old one first", "%d plugins", len(c.Plugin))
	case c.After != "":
		return nil, usageErrorf("diff", "give a StableHLO file or --example", "two files with --plugin")
	case len(c.Topology) == 0:
		return nil, usageErrorf("diff", "give --topology", "nothing to compile for")
	}
	var steps [2]compileCmd
	for i, plugin := range c.Plugin { // check all before the first compilation, which may take minutes
		steps[i] = compileCmd{File: c.Before, Topology: c.Topology, stepOptions: c.stepOptions, Plugin: plugin}
		if err := steps[i].check(); err != nil {
			return nil, err
		}
		if _, err := a.findPlugin("tpu", plugin); err != nil {
			return nil, err
		}
	}
	for _, step := range steps {
		var side []*report.Report
		for _, topology := range step.Topology {
			r, err := a.compileStep(ctx, &step, topology, a.compilerCacheDir(c.Cache))
			if ctx.Err() != nil {
				return nil, &errkind.Fault{Op: "diff", Err: context.Cause(ctx)}
			}
			if o := ahead.OutcomeOf(topology, r, err); o.Report != nil { // a step that does not fit also has a report
				side = append(side, o.Report)
			} else {
				return nil, o.Error
			}
		}
		sides = append(sides, side)
	}
	return sides, nil
}

// compare returns one comparison per slice. If there is only one report before and one report
// after, the two reports may be for different slices.
func (c *diffCmd) compare(before, after []*report.Report) (all []*diff.Diff, err error) {
	var missing []error
	of := map[string]*report.Report{}
	for _, r := range before {
		of[diff.SliceOf(r)] = r
	}
	for _, r := range after {
		slice := diff.SliceOf(r)
		b := of[slice]
		if len(before) == 1 && len(after) == 1 {
			b, slice = before[0], diff.SliceOf(before[0])
		}
		delete(of, slice)
		if b == nil {
			missing = append(missing, usageErrorf("diff", "compile both for the same slices", "%s is in the second file only",
				slice))
			continue
		}
		d, err := diff.Reports(b, r, diff.Tolerance{Share: c.Tolerance})
		if err != nil {
			return nil, newUsageError("diff", err)
		}
		all = append(all, d)
	}
	for _, r := range before {
		if slice := diff.SliceOf(r); of[slice] != nil {
			missing = append(missing, usageErrorf("diff", "compile both for the same slices", "%s is in the first file only",
				slice))
		}
	}
	return all, errors.Join(missing...)
}
