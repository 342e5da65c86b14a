package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// compileRequest is a request to compile a step for one topology with the plugin at the path
// Plugin. Compiled programs are stored in the folder Keep, unless Keep is empty.
type compileRequest struct {
	Plugin, Topology, Keep string
	Command                compileCmd
}

// compileInChild compiles a step and returns its report. It is called in a child process.
func compileInChild(ctx context.Context, a *app, r compileRequest) (*report.Report, error) {
	c := &r.Command
	if c.File != "" {
		return compileFile(ctx, r)
	}
	m, size, err := findModel(c.Example, c.size())
	if err != nil {
		return nil, err
	}
	opts := strategy.Options{Replicas: c.Replicas, LogicalDevices: c.Logical, BySlice: c.BySlice}
	var policy precision.Policy
	switch c.Precision {
	case "", "default":
	case "highest":
		opts.Precision = lowering.PrecisionHighest
	default:
		if policy, err = precision.ParsePolicy(c.Precision); err != nil {
			return nil, newUsageError("compile", err)
		}
	}
	if !c.Whole && max(c.Logical, 1) > 1 {
		opts.Variables = m.rules(c.Logical)
	}
	if c.ShardState != "" {
		state, err := logical.ParseStateSharding(c.ShardState)
		if err != nil {
			return nil, newUsageError("compile", err)
		}
		opts.Variables = append(opts.Variables, logical.MatchState("", state))
	}
	opts.Compiling = func(strategy.Compilation) {} // shown by the parent's progress line
	opts.Phases = notePhase
	keeper := &probe.CachingCompiler{CacheDir: r.Keep}
	if r.Keep != "" {
		opts.Compiler = keeper
	} else if c.SuggestAnnotations && ahead.PluginKind(r.Topology) == "tpu" { // probes run in separate processes
		if opts.Compiler, err = worker.New(worker.Options{Command: []string{a.executable, "compile-worker"}}); err != nil {
			return nil, err
		}
	}
	strat, done, err := ahead.Open(ctx, r.Topology, r.Plugin, opts)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := m.rowsPerReplica(size, strat.NumReplicasInSync())
	if err != nil {
		return nil, err
	}
	if m.checkFit != nil {
		if err := m.checkFit(size, strat.NumReplicasInSync(), strat.NumLogicalDevices()); err != nil {
			return nil, newUsageError("compile", err)
		}
	}
	var batch []any
	for _, shape := range m.batch(size, rows) {
		batch = append(batch, shape)
	}
	step, err := m.trainStep(strat, size, policy, 0)
	if err != nil {
		return nil, err
	}
	rep, err := ahead.Compile(ctx, step, batch, ahead.Outputs{Text: c.Text, Save: c.Save,
		SuggestAnnotations: c.SuggestAnnotations, Progress: noteLine})
	if err != nil {
		return nil, err
	}
	if keeper.Duration > 0 { // the time of the original compilation
		rep.CompilingSeconds = keeper.Duration.Seconds()
	}
	return rep, nil
}

// replicasPattern and partitionsPattern match the module attributes mhlo.num_replicas and
// mhlo.num_partitions.
var (
	replicasPattern   = regexp.MustCompile(`mhlo\.num_replicas\s*=\s*([0-9]{1,6})`)
	partitionsPattern = regexp.MustCompile(`mhlo\.num_partitions\s*=\s*([0-9]{1,6})`)
)

// matchNumber returns the number in the first match of expression, or 1 if there is no match.
func matchNumber(expression *regexp.Regexp, text []byte) int {
	n := 1
	if m := expression.FindSubmatch(text); m != nil {
		n, _ = strconv.Atoi(string(m[1])) // the expression limits the number of digits
	}
	return n
}

// maxProgram is the maximum size of a program in bytes. Compilers reject messages of 2 GiB.
const maxProgram = 2<<30 - 1

// compileFile compiles a StableHLO file ahead of time and returns its report.
func compileFile(ctx context.Context, r compileRequest) (*report.Report, error) {
	text, err := files.ReadFile(r.Command.File, maxProgram)
	if err != nil {
		return nil, newUsageError("compile", err)
	}
	if ahead.CPUDevices(r.Topology) > 0 {
		return nil, usageErrorf("compile", "give a TPU slice such as v5e:2x4",
			"the CPU plugin does not compile a StableHLO file ahead of time")
	}
	slice, err := ahead.Describe(ctx, r.Topology, r.Plugin)
	if err != nil {
		return nil, err
	}
	defer slice.Close()
	replicas, partitions, perReplica := matchNumber(replicasPattern, text), matchNumber(partitionsPattern, text),
		max(r.Command.Logical, 1)
	if replicas < 1 || partitions < 1 || partitions%perReplica != 0 {
		return nil, usageErrorf("compile", "give a number that divides them",
			"--logical %d does not divide the %d partitions of %s", perReplica, partitions, r.Command.File)
	}
	assignment, err := tpu.BuildDeviceAssignment(slice.Topology(), tpu.AssignmentOptions{Replicas: replicas * partitions})
	if err != nil {
		return nil, &usageError{Err: &errkind.Fault{Op: "compile", Reason: fmt.Sprintf("%s is for %d devices", r.Command.File,
			replicas*partitions), Err: err}}
	}
	var ids []int
	for _, replica := range assignment.DeviceIDs() {
		ids = append(ids, replica...)
	}
	in := report.Input{
		Step: filepath.Base(r.Command.File), Target: report.TargetOf(slice.Info()),
		Replicas: replicas * partitions / perReplica, LogicalDevices: perReplica, Text: text,
	}
	keeper := &probe.CachingCompiler{CacheDir: r.Keep}
	in.Program, err = keeper.CompileTopology(ctx, slice.Description(), pjrt.Program{Code: text, Trusted: true},
		pjrt.CompileOptions{
			Replicas: replicas, Partitions: partitions, DeviceAssignment: slices.Collect(slices.Chunk(ids, partitions)),
			SPMD: partitions > 1, Shardy: strings.Contains(string(text), "sdy."),
		})
	if err != nil {
		f := ahead.FailureOf(&errkind.Fault{Op: "compiling", Subject: r.Command.File, Err: err})
		if in.Refused = memory.RefusalOf(err); in.Refused != nil {
			f.Report, _ = report.New(in) // without a program it uses only the text
		}
		return nil, f
	}
	defer in.Program.Close()
	in.CompilingSeconds = keeper.Duration.Seconds()
	if in.Step, err = in.Program.Name(); err != nil {
		return nil, err
	}
	return report.New(in)
}
