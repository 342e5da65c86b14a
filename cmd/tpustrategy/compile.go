package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/patience"
	"github.com/tpustrategy/tpustrategy/report"
)

type compileCmd struct {
	File      string   `arg:"" optional:"" help:"A StableHLO module; without one, give --example." type:"localpath"`
	Example   string   `help:"Compile this example model: digits, dense or placement."`
	Topology  []string `help:"The slice to compile for, such as v5e:2x4, v5p-128, 2x v5e-256 or cpu:8. Separate several by commas." required:""`
	Logical   int      `help:"Number of logical devices of a replica." default:"1"`
	Replicas  int      `help:"Number of replicas; 0 takes as many as fit."`
	Width     int      `help:"Width of the example's layers; 0 takes the example's own."`
	Layers    int      `help:"Number of the example's pairs of layers; 0 takes the example's own."`
	Batch     int      `help:"Rows of one replica's batch; 0 takes the example's own."`
	Whole     bool     `help:"Keep a whole copy of every variable on each logical device."`
	Precision string   `help:"Precision of matrix products: default or highest." enum:"default,highest" default:"default"`
	Report    string   `help:"Write the report to this file: as a page if the name ends in .html, and as JSON otherwise." type:"localpath"`
	Save      string   `help:"Write the compiled step to this file, to be loaded and run on such a slice." type:"localpath"`
	Text      string   `help:"Write the step's StableHLO to this file." type:"localpath"`
	Plugin    string   `help:"Path of the plugin, instead of looking for it." type:"localpath"`
}

// Help is the text under --help.
func (compileCmd) Help() string {
	return `Compiles a step with the real compiler, for devices that need not be here, and reports the memory of each core, the collectives and an estimate of the cost. Each compilation runs in a process of its own.

Examples:
  tpustrategy compile --example digits --topology v5e:2x4 --logical 2
  tpustrategy compile --example dense --width 32768 --topology v5e:4x4,v5p:2x2x4 --logical 8 --json
  tpustrategy compile step.mlir --topology v5e:2x4 --report step.html

Ends with exit code 4 if a program does not fit into the memory of a core.`
}

func (c *compileCmd) Run(ctx context.Context, a *app, root *cli) error {
	if err := c.check(); err != nil {
		return err
	}
	var all []ahead.Outcome
	for _, topology := range c.Topology {
		r, err := a.compile(ctx, c, topology)
		if ctx.Err() != nil {
			return &errkind.Fault{Op: "compile", Err: context.Cause(ctx)}
		}
		all = append(all, ahead.OutcomeOf(topology, r, err))
	}
	if err := c.write(a, root, all); err != nil {
		return err
	}
	if f := ahead.FirstFailure(all); f != nil {
		f.Reported = root.JSON
		return f
	}
	return nil
}

// check refuses a command line that cannot be meant.
func (c *compileCmd) check() error {
	switch {
	case c.File == "" && c.Example == "":
		return misused("compile", "give a StableHLO file, or --example digits", "no program")
	case c.File != "" && c.Example != "":
		return misused("compile", "give a StableHLO file or --example, not both", "two programs")
	case c.Logical < 1:
		return misused("compile", "give a number from 1", "--logical %d", c.Logical)
	case c.Replicas < 0:
		return misused("compile", "give a number from 1, or 0 for as many as fit", "--replicas %d", c.Replicas)
	case len(c.Topology) > 1 && c.Text+c.Save != "":
		return misused("compile", "give one --topology", "--text and --save write one file")
	case c.File != "" && c.Text+c.Save != "":
		return misused("compile", "leave them out, or give --example", "--text and --save of a StableHLO file")
	}
	// A compilation may take minutes: what cannot be written is said before it.
	for _, out := range [][2]string{{"report", c.Report}, {"text", c.Text}, {"save", c.Save}} {
		if err := ahead.CheckPlace(out[1]); err != nil {
			return refused("compile: --"+out[0], err)
		}
	}
	if c.Example != "" {
		if _, _, err := findModel(c.Example, modelSize{c.Width, c.Layers, c.Batch}); err != nil {
			return err
		}
	} else if info, err := os.Stat(c.File); err != nil {
		return refused("compile", err)
	} else if !info.Mode().IsRegular() {
		return misused("compile", "name a StableHLO file", "%s is no file", c.File)
	}
	for i, topology := range c.Topology {
		c.Topology[i] = strings.TrimSpace(topology)
		if err := ahead.CheckTopology("compile", "--topology", c.Topology[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) compile(ctx context.Context, c *compileCmd, topology string) (*report.Report, error) {
	kind := "tpu"
	if ahead.CPUDevices(topology) > 0 {
		kind = "cpu"
	}
	found, err := a.find(kind, c.Plugin)
	if err != nil {
		return nil, err
	}
	what := c.Example
	if what == "" {
		what = filepath.Base(c.File)
	}
	doing := "compiling " + what + " for " + topology
	defer patience.Watch(func(passed time.Duration) {
		fmt.Fprintf(a.stderr, "tpustrategy: %s goes on: %s so far\n", doing, passed.Round(time.Second))
	})()
	answer, err := a.child(ctx, doing, childRequest{Compile: &compileRequest{
		Plugin: found.Path, Topology: topology, Example: c.Example, Size: modelSize{c.Width, c.Layers, c.Batch}, File: c.File,
		Replicas: c.Replicas, Logical: c.Logical, Whole: c.Whole, Precision: c.Precision, Text: c.Text, Save: c.Save,
	}}, kind == "tpu")
	if err != nil {
		return nil, err
	}
	return answer.Compile.Report, nil
}

// write writes the report files and shows the outcomes, also those whose file could not be written.
func (c *compileCmd) write(a *app, root *cli, all []ahead.Outcome) error {
	unwritten := ahead.WriteReports(c.Report, all)
	show := ahead.WriteText
	if root.JSON {
		show = func(w io.Writer, all []ahead.Outcome) error { return ahead.WriteJSON(w, all) }
	}
	if err := show(a.stdout, all); err != nil {
		return err
	}
	if unwritten != nil {
		return &failure{Kind: "failed", Message: unwritten.Error(), Reported: root.JSON}
	}
	return nil
}
