package main

import (
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/report"
)

// maxReport bounds a report that is read: those of the largest steps have a few megabytes.
const maxReport = 256 << 20

type reportCmd struct {
	File   string `arg:"" help:"A report that compile wrote, as JSON." type:"localpath"`
	Output string `help:"Write the report to this file instead: as a page if the name ends in .html, and as JSON otherwise." short:"o" type:"localpath"`
}

// Help is the text under --help.
func (reportCmd) Help() string {
	return `Shows a report again, or turns it into a page with pictures.

Examples:
  tpustrategy compile --example digits --topology v5e:2x4 --report step.json
  tpustrategy report step.json -o step.html`
}

// Run shows the report.
func (c *reportCmd) Run(a *app, root *cli) error {
	data, err := files.Read(c.File, maxReport)
	if err != nil {
		return refused("report", err)
	}
	r, err := report.Parse(data)
	if err != nil {
		return refused(c.File, err)
	}
	switch {
	case c.Output != "":
		if err := ahead.WriteReport(c.Output, r); err != nil || !root.JSON {
			return err
		}
		return a.printJSON(map[string]string{"output": c.Output})
	case root.JSON:
		return a.printJSON(r)
	}
	return r.WriteText(a.stdout)
}
