package gomlx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	reportmemory "github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type aheadTarget struct {
	target       report.Target
	line         *progress.Line // reports progress to Options.Log
	reportFile   string         // file for the report; empty for none
	planSearch   *planSearch    // the plan search to run instead of a compilation; may be nil
	stoppedOnce  sync.Once      // calls Options.OnAheadOfTime once
	hostPrograms hostPrograms
}

func (a *aheadTarget) unsupportedError(what string) error {
	return &errkind.Fault{Op: "gomlx: " + what, Reason: "the backend compiles ahead of time for " + a.target.Name +
		", which is not here",
		Hint: "leave the distribution to the backend, or run on the devices", Class: errkind.NotImplementedError,
		Err: errors.ErrUnsupported}
}

// NewAheadOfTime returns a backend that compiles for a described slice, which need not exist on
// this machine. The first execution of a program with variables and data, such as a training step,
// compiles it for the slice, calls Options.OnAheadOfTime, and returns an [*AheadOfTimeError] with
// the report. GoMLX's training loops return this error.
//
// Programs without variables or without data, such as the initializers of variables and the
// preparation of data, run on a CPU device of this machine. They run only when one of their results
// is read, so a model may be larger than the memory of this machine as long as the variables are
// not read.
//
// The compiler runs in a separate process, see Options.Worker, unless Options.Compiler is a
// [pjrt.TopologyCompiler]. If reportFile is not empty, the report is also written to this file: as
// a page if its name ends in .html or .htm, and as JSON otherwise. Long compilations report their
// progress to Options.Log every ten seconds. The caller must finalize the backend before closing
// the slice.
func NewAheadOfTime(slice *system.Slice, reportFile string, opts Options) (*Backend, error) {
	if err := slice.Check(); err != nil {
		return nil, wrapError("NewAheadOfTime", "", err)
	}
	a := &aheadTarget{target: report.TargetOf(slice.Info()), reportFile: reportFile, line: newProgressLine(opts.Log)}
	var err error
	if opts.Compiler, err = opts.aheadCompiler(a.line); err != nil {
		return nil, wrapError("NewAheadOfTime", "", err)
	}
	return newAhead(a, lowering.TargetTPU, slice.Topology(), opts,
		func(of engine.Options) (*engine.Runtime, error) { return engine.NewDescribedRuntime(slice, of), nil })
}

// newProgressLine returns a progress line that writes to w. If w is nil, the progress is discarded.
func newProgressLine(w io.Writer) *progress.Line {
	if w == nil {
		w = io.Discard
	}
	return progress.NewLine(w, progress.Options{Record: progress.DefaultRecordFile()})
}

// aheadCompiler returns the compiler for a slice. It returns nil if programs are compiled in this
// process.
func (o Options) aheadCompiler(line *progress.Line) (pjrt.Compiler, error) {
	if _, ok := o.Compiler.(pjrt.TopologyCompiler); ok {
		line.SetProcess(-1) // the process is not known
		return o.Compiler, nil
	}
	w, err := worker.New(worker.Options{Command: o.Worker, OnStart: line.SetProcess})
	if of := (*worker.Error)(nil); errors.As(err, &of) && of.Reason == worker.NotStarted && o.Worker == nil {
		return nil, nil // there is no worker program
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// newAheadOnCPU is like NewAheadOfTime, but compiles for the devices of a CPU system. It does not
// run the compiled programs on these devices.
func newAheadOnCPU(sys *system.System, reportFile string, opts Options) (*Backend, error) {
	topology := sys.Topology()
	a := &aheadTarget{reportFile: reportFile, line: newProgressLine(opts.Log)}
	a.target = report.Target{Name: fmt.Sprintf("cpu:%d", topology.NumDevices()), Kind: "cpu",
		Devices: topology.NumDevices(), Platform: sys.Client().PlatformVersion()}
	load := sys.Client().Compile
	if opts.Worker != nil {
		w, err := worker.New(worker.Options{Command: opts.Worker, OnStart: a.line.SetProcess})
		if err != nil {
			return nil, wrapError("NewAheadOfTime", "", err)
		}
		load = func(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
			return w.Compile(ctx, sys.Client(), program, opts)
		}
	}
	compile := func(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
		x, err := load(ctx, program, opts)
		if err != nil {
			return nil, err
		}
		record, err := x.Executable().Record()
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		return record.Executable(), x.Close()
	}
	return newAhead(a, lowering.TargetCPU, topology, opts,
		func(of engine.Options) (*engine.Runtime, error) {
			return engine.NewCompilingRuntime(topology, "cpu", compile, of), nil
		})
}

func newAhead(a *aheadTarget, target lowering.Target, topology tpu.Topology, opts Options,
	newRuntime func(engine.Options) (*engine.Runtime, error)) (*Backend, error) {
	b := &Backend{opts: opts, ahead: a}
	if err := b.initialize(context.Background(), topology, target, "ahead of time for "+a.target.String(),
		newRuntime); err != nil {
		return nil, err
	}
	a.hostPrograms.ctx = b.runtime.Context
	a.hostPrograms.opts = Options{Name: b.opts.Name, Target: b.opts.Target, Precision: opts.Precision, Random: opts.Random}
	b.closers = append(b.closers, a.hostPrograms.Close)
	return b, nil
}

func (c *config) openAhead(ctx context.Context, opts Options) (*Backend, error) {
	fail := func(option string, err error) error {
		return configError(c.text, option, "it cannot be used", "", err)
	}
	if c.reportFile != "" {
		if info, err := os.Stat(filepath.Dir(c.reportFile)); err != nil || !info.IsDir() {
			return nil, fail("report", errors.Join(err, fmt.Errorf("%s is no directory", filepath.Dir(c.reportFile))))
		}
	}
	plugin := ""
	if filepath.IsAbs(c.plugin) {
		plugin = c.plugin
	}
	if n := cpuDevices(c.topology); n > 0 {
		sys, err := system.Open(ctx, system.Options{CPUDevices: n, Plugin: plugin})
		if err != nil {
			return nil, fail("topology", err)
		}
		return c.openOn(n, opts, func(opts Options) (*Backend, error) { return newAheadOnCPU(sys, c.reportFile, opts) },
			sys.Close)
	}
	slice, err := system.Describe(ctx, c.topology, system.DescribeOptions{Plugin: plugin})
	if err != nil {
		return nil, fail("topology", err)
	}
	return c.openOn(slice.Info().Devices, opts, func(opts Options) (*Backend, error) {
		planned, err := c.newPlanSearch(slice, opts)
		if err != nil {
			return nil, err
		}
		b, err := NewAheadOfTime(slice, c.reportFile, opts)
		if err == nil {
			b.ahead.planSearch = planned
		}
		return b, err
	}, slice.Close)
}

// executeAhead implements Execute on a backend that compiles ahead of time. A program with
// variables and data is not run; executeAhead compiles it and returns the report as an error. Other
// programs run on a CPU device.
func (e *Executable) executeAhead(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	b, p := e.backend, e.state.program
	data, variables := false, false
	for _, name := range p.ParameterNames[:numInputs(p)] {
		data, variables = data || !isVariable(name), variables || isVariable(name)
	}
	if data && variables {
		stopped := e.state.reportAhead(donate)
		if of := (*AheadOfTimeError)(nil); b.opts.OnAheadOfTime != nil && errors.As(stopped, &of) {
			b.ahead.stoppedOnce.Do(func() { b.opts.OnAheadOfTime(of) })
		}
		return nil, stopped
	}
	var values []lazyBytes
	for i, input := range inputs {
		h := input.(*Buffer).state
		v, err := h.lazyReader()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if donate[i] {
			h.invalidate(nil, false)
		}
	}
	var out []compute.Buffer
	for r, result := range b.ahead.hostPrograms.lazyResults(p, values) {
		buf, err := b.newBuffer(&bufferState{backend: b, shape: p.Outputs[r].Clone(), lazyValue: result})
		if err != nil {
			return nil, err
		}
		out = append(out, buf)
	}
	return out, nil
}

// reportAhead compiles the program ahead of time, once per set of donated parameters. The program
// cannot run without devices, so reportAhead always returns an error, which contains the report.
func (c *executableState) reportAhead(donated []bool) error {
	mask, key := c.reusableDonations(donated)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.variants == nil {
		return errExecutableFinalized
	}
	if c.reports == nil {
		c.reports = map[string]error{}
	}
	if c.reports[key] == nil {
		c.reports[key] = c.planOrCompile(mask)
	}
	return c.reports[key]
}

// planOrCompile searches for a sharding plan if the option plan= is set. Otherwise it compiles the
// program. It returns the result as an [*AheadOfTimeError].
func (c *executableState) planOrCompile(donated []bool) error {
	a := c.backend.ahead
	if a.planSearch == nil {
		return c.compileAhead(donated)
	}
	result := &AheadOfTimeError{Program: c.program.Name, Topology: a.target.Name, File: a.planSearch.planFile}
	result.PlanSearch, result.Err = c.searchPlan(donated)
	return result
}

func (c *executableState) compileAhead(donated []bool) error {
	b, a := c.backend, c.backend.ahead
	start := time.Now()
	sig, _ := c.signature(donated)
	m, err := spmd.AssembleGlobal(c.program, sig)
	if err != nil {
		return err
	}
	lowered := time.Since(start)
	result := &AheadOfTimeError{Program: c.program.Name, Topology: a.target.Name,
		Explanation: newExplanation(c.program.Name, m, c.placements, b.opts.Rules)}
	start = time.Now()
	now := phase.Phase{Name: c.program.Name, Stage: phase.Compiling, Target: a.target.Name,
		Replicas: b.mesh.Size() / b.logical.Size(), LogicalDevices: b.logical.Size(), TextBytes: len(m.Text)}
	a.line.SetPhase(now)
	x, _, err := b.runtime.Build(b.runtime.Context, c.program.Name, pjrt.Program{Code: m.Text, Trusted: true},
		b.runtime.Options(1), nil)
	now.Stage, now.Err = phase.Done, err
	a.line.SetPhase(now)
	in := report.Input{Target: a.target, Refused: reportmemory.RefusalOf(err), LoweringSeconds: lowered.Seconds(),
		CompilingSeconds: time.Since(start).Seconds()}
	if b.opts.RulesName != "" {
		in.Options = map[string]string{"rules": b.opts.RulesName}
	}
	for _, argument := range m.Arguments {
		if isVariable(argument.Name) {
			state, _ := b.opts.Rules.StateFor(argument.Name, argument.GlobalDims)
			in.Settings.ShardedState |= state.Parts()
		}
	}
	result.Err = err
	switch {
	case err == nil:
		in.Program = x.(engine.OfflineProgram).Executable
		setResultSpecs(m, sig, in.Program)
		result.Explanation = newExplanation(c.program.Name, m, c.placements, b.opts.Rules)
	case in.Refused == nil:
		return result
	}
	r, err := newReport(c.program.Name, m, in)
	if err != nil {
		result.Err = cmp.Or(result.Err, err)
		return result
	}
	result.Explanation.Report = r
	if b.opts.Explain != nil {
		b.opts.Explain(result.Explanation)
	}
	if a.reportFile != "" {
		result.File = a.reportFile
		result.Err = errors.Join(result.Err, files.Replace(a.reportFile, func(w io.Writer) error {
			if strings.HasSuffix(a.reportFile, ".html") || strings.HasSuffix(a.reportFile, ".htm") {
				return r.WriteHTML(w)
			}
			return writeJSON(w, r)
		}))
	}
	return result
}

// setResultSpecs reads the shardings that the partitioner chose for results from the compiled
// program, and stores them in m. If the compiled program does not contain a sharding, the report
// shows the result as replicated.
func setResultSpecs(m *spmd.Module, sig spmd.GlobalSignature, exe *pjrt.Executable) {
	ops, err := outputShardings(exe, len(m.Results))
	if err != nil {
		return
	}
	for i := range m.Results {
		result := &m.Results[i]
		if !sig.Results[i].AutoSharded {
			continue
		}
		spec, err := sharding.SpecOf(m.Mesh, ops[i], len(result.GlobalDims))
		if err != nil {
			continue
		}
		if shard, err := sharding.ShardShape(m.Mesh, spec, result.GlobalDims); err == nil {
			result.Spec, result.ShardDims = spec, shard
		}
	}
}
