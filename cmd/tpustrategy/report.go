package main

import (
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/report"
)

// maxReport is the maximum size of a report file in bytes. Reports of large steps have a few megabytes.
const maxReport = 256 << 20

type reportCmd struct {
	File   string `arg:"" help:"Report as JSON, from compile -o." type:"localpath"`
	Output string `short:"o" help:"Write the report to this file: as a page if the name ends in .html, and as JSON otherwise." type:"localpath"`
	Trace  string `help:"Write the predicted run of the step to this file, as a trace for Perfetto or chrome://tracing." type:"localpath"`
}

func (reportCmd) Help() string {
	return `Prints a report, or converts it to a page or to a trace of the predicted run.

Examples:
  tpustrategy compile --example digits --topology v5e:2x4 -o step.json
  tpustrategy report step.json -o step.html
  tpustrategy report step.json --trace step.trace.json`
}

func (c *reportCmd) Run(a *app, root *cli) error {
	data, err := files.ReadFile(c.File, maxReport)
	if err != nil {
		return newUsageError("report", err)
	}
	r, err := report.Parse(data)
	if err != nil {
		return newUsageError(c.File, err)
	}
	written := map[string]string{}
	if c.Output != "" {
		if err := ahead.WriteReport(c.Output, r); err != nil {
			return err
		}
		written["output"] = c.Output
	}
	if c.Trace != "" {
		if err := ahead.WriteFile(c.Trace, r.WriteTrace); err != nil {
			return err
		}
		written["trace"] = c.Trace
	}
	switch {
	case len(written) > 0 && root.JSON:
		return a.printJSON(written)
	case len(written) > 0:
		a.printWrittenFiles(c.Output, c.Trace)
		return nil
	case root.JSON:
		return a.printJSON(r)
	}
	return r.WriteText(a.stdout)
}
