package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

type compileCmd struct {
	File     string   `arg:"" optional:"" help:"StableHLO module to compile. Without a file, give --example." type:"localpath"`
	Topology []string `help:"Slice to compile for, such as v5e:2x4, v5p-128, \"2x v5e-256\", h100:8 or cpu:8. Several are separated by commas." required:""`
	stepOptions
	Output             string `short:"o" help:"Write the report to this file: as a page if the name ends in .html, and as JSON otherwise." type:"localpath"`
	Save               string `help:"Write the compiled step to this file, to load and run it on such a slice." type:"localpath"`
	Text               string `help:"Write the StableHLO of the step to this file." type:"localpath"`
	SuggestAnnotations bool   `help:"Also compile the example with other annotations, and report which of them remove collectives."`
	Plugin             string `help:"Path of the plugin. Default: the installed plugin." type:"localpath"`
}

// stepOptions contains the flags that select the training step and specify how it is compiled.
type stepOptions struct {
	Example    string `help:"Compile this example model: gpt, digits, dense or placement."`
	Preset     string `help:"Size of gpt: tiny, 125m, 1b3 or llama3-8b. Default: tiny."`
	Logical    int    `help:"Number of logical devices of a replica." default:"1"`
	BySlice    bool   `help:"With several slices: place all logical devices of a replica on one slice. For examples only."`
	Replicas   int    `help:"Number of replicas. Default: as many as fit."`
	Width      int    `help:"Width of the example's layers. Default: that of the example."`
	Layers     int    `help:"Number of pairs of layers of the example. Default: that of the example."`
	Batch      int    `help:"Rows of a step over all replicas. Default: those of the example."`
	Whole      bool   `help:"Replicate every variable on all logical devices of a replica."`
	ShardState string `help:"State to shard over the replicas, one of ${states}." enum:",${states}" default:""`
	Remat      string `help:"Layers of gpt to recompute in the backward pass: none, products (all but products) or full." enum:",none,products,full" default:""`
	Precision  string `help:"Precision of the computation: f32, bf16 or f16 (variables stay float32), default (float32, with products in passes of bfloat16) or highest (exact float32 products)." enum:"default,highest,f32,bf16,f16" default:"default"`
}

func (compileCmd) Help() string {
	return `Compiles a step with the real compiler for devices that this machine need not have, and reports the memory of each core, the collectives and an estimate of the cost. Each compilation runs in a process of its own.

Examples:
  tpustrategy compile --example digits --topology v5e:2x4 --logical 2
  tpustrategy compile --example gpt --preset 1b3 --topology v5e:4x4 --logical 4 --remat full --shard-state parameters --precision bf16 --json
  tpustrategy compile --example dense --width 32768 --topology v5e:4x4,v5p:2x2x4 --logical 8 --json
  tpustrategy compile step.mlir --topology v5e:2x4 -o step.html

Exit code 4: a program does not fit into the memory of a core.`
}

func (c *compileCmd) Run(ctx context.Context, a *app, root *cli) error {
	if err := c.check(); err != nil {
		return err
	}
	var all []ahead.Outcome
	for _, topology := range c.Topology {
		r, err := a.compileStep(ctx, c, topology, "")
		if ctx.Err() != nil {
			return &errkind.Fault{Op: "compile", Err: context.Cause(ctx)}
		}
		o := ahead.OutcomeOf(topology, r, err)
		if o.Report != nil {
			o.Report.Options = c.flagValues()
		}
		c.addSuggestions(&o)
		all = append(all, o)
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

// check validates the flags and arguments.
func (c *compileCmd) check() error {
	switch {
	case c.File == "" && c.Example == "":
		return usageErrorf("compile", "give a StableHLO file, or --example digits", "no program")
	case c.File != "" && c.Example != "":
		return usageErrorf("compile", "give a StableHLO file or --example, not both", "two programs")
	case c.Logical < 1:
		return usageErrorf("compile", "give a number from 1", "--logical %d", c.Logical)
	case c.Replicas < 0:
		return usageErrorf("compile", "give a number from 1, or 0 for as many as fit", "--replicas %d", c.Replicas)
	case len(c.Topology) > 1 && c.Text+c.Save != "":
		return usageErrorf("compile", "give one --topology", "--text and --save write one file")
	case c.File != "" && c.Text+c.Save != "":
		return usageErrorf("compile", "leave them out, or give --example", "--text and --save of a StableHLO file")
	}
	// Check the output files first, because a compilation may take minutes.
	for _, out := range [][2]string{{"output", c.Output}, {"text", c.Text}, {"save", c.Save}} {
		if err := ahead.CheckWritable(out[1]); err != nil {
			return newUsageError("compile: --"+out[0], err)
		}
	}
	if c.Example != "" {
		m, size, err := findModel(c.Example, c.size())
		if err != nil {
			return err
		}
		if m.checkFit != nil {
			if err := m.checkFit(size, max(c.Replicas, 1), c.Logical); err != nil {
				return newUsageError("compile", err)
			}
		}
	} else if err := c.checkFileOptions(); err != nil {
		return err
	} else if info, err := os.Stat(c.File); err != nil {
		return newUsageError("compile", err)
	} else if !info.Mode().IsRegular() {
		return usageErrorf("compile", "name a StableHLO file", "%s is no file", c.File)
	}
	for i, topology := range c.Topology {
		c.Topology[i] = strings.TrimSpace(topology)
		if err := ahead.CheckTopology("compile", "--topology", c.Topology[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *compileCmd) size() modelSize {
	return modelSize{Width: c.Width, Layers: c.Layers, Batch: c.Batch, Preset: c.Preset, Remat: c.Remat}
}

// checkFileOptions returns an error for options that do not apply to a StableHLO file.
func (c *compileCmd) checkFileOptions() error {
	for _, one := range []struct {
		flag  string
		given bool
	}{
		{"--replicas", c.Replicas != 0}, {"--width", c.Width != 0}, {"--layers", c.Layers != 0}, {"--batch", c.Batch != 0},
		{"--whole", c.Whole}, {"--by-slice", c.BySlice},
		{"--precision", c.Precision != "default"}, {"--preset", c.Preset != ""}, {"--remat", c.Remat != ""},
		{"--shard-state", c.ShardState != ""}, {"--suggest-annotations", c.SuggestAnnotations},
	} {
		if one.given {
			return usageErrorf("compile", "leave it out, or give --example",
				"%s of a StableHLO file, which says itself what it is", one.flag)
		}
	}
	return nil
}

// compileStep starts a child process that compiles a training step for a topology. If keep is not
// empty, it is the folder in which compiled programs are cached.
func (a *app) compileStep(ctx context.Context, c *compileCmd, topology, keep string) (*report.Report, error) {
	kind := ahead.PluginKind(topology)
	found, err := a.findPlugin(kind, c.Plugin)
	if err != nil {
		return nil, err
	}
	what := c.Example
	if what == "" {
		what = filepath.Base(c.File)
	}
	doing := "compiling " + what + " for " + topology
	line := progress.NewLine(a.stderr, progress.Options{Prefix: "tpustrategy: ", Record: a.durationsFile()})
	defer line.Close()
	if c.File != "" { // a StableHLO file has no tracing or lowering
		line.SetPhase(phase.Phase{Name: what, Stage: phase.Compiling, Target: topology, Replicas: 1,
			LogicalDevices: c.Logical})
	}
	env := a.environ
	if kind != "cpu" {
		env = a.quietEnviron()
	}
	answer, err := a.runChild(ctx, doing, childRequest{Compile: &compileRequest{found.Path, topology, keep, *c}},
		child.Command{Env: env, OnStart: line.SetProcess, OnNotice: showNotes(line)})
	if err != nil {
		return nil, err
	}
	return answer.Compile, nil
}

// compilerCacheDir returns the folder for compiled programs. keep is a folder, "none" for no
// folder, or "" for the default folder.
func (a *app) compilerCacheDir(keep string) string {
	switch keep {
	case "none":
		return ""
	case "":
		return probe.DefaultCacheDir(a.cacheDir)
	}
	return keep
}

// durationsFile returns the file that records how long earlier compilations took.
func (a *app) durationsFile() string {
	if a.cacheDir == "" {
		return ""
	}
	return filepath.Join(a.cacheDir, "tpustrategy", "compilations.jsonl")
}

// write writes the report files and prints the outcomes. The outcomes are printed even if a file
// cannot be written.
func (c *compileCmd) write(a *app, root *cli, all []ahead.Outcome) error {
	unwritten := ahead.WriteReports(c.Output, all)
	if err := ahead.WriteOutcomes(a.stdout, all, root.JSON); err != nil {
		return err
	}
	if unwritten != nil {
		return &failure{Category: "failed", Message: unwritten.Error(), Reported: root.JSON}
	}
	for _, o := range all {
		if o.Report != nil {
			a.printWrittenFiles(ahead.ReportPath(c.Output, o.Topology, len(all)))
		}
		if o.Error == nil {
			a.printWrittenFiles(c.Text, c.Save)
		}
	}
	return nil
}
