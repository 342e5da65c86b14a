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
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// aheadTarget is the state of a backend that compiles ahead of time.
type aheadTarget struct {
	target report.Target
	line   *progress.Line // reports progress to Options.Notes
	file   string         // file for the report; empty for none
	plan   *planning      // the plan search to run instead of a compilation; may be nil
	stop   sync.Once      // calls Options.Stopped once
	host   hostPrograms
}

// notHere returns an error for an operation that needs the devices.
func (a *aheadTarget) notHere(what string) error {
	return &errkind.Fault{Op: "gomlx: " + what, Reason: "the backend compiles ahead of time for " + a.target.Name + ", which is not here",
		Hint: "leave the distribution to the backend, or run on the devices", Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// NewAheadOfTime returns a backend that compiles for a described slice, which need not exist on
// this machine. The first execution of a program with variables and data, such as a training step,
// compiles it for the slice, calls Options.Stopped, and returns an [*AheadOfTimeError] with the
// report. GoMLX's training loops return this error.
//
// Programs without variables or without data, such as the initializers of variables and the
// preparation of data, run on a CPU device of this machine. They run only when one of their results
// is read, so a model may be larger than the memory of this machine as long as the variables are
// not read.
//
// The compiler runs in a separate process, see Options.Worker, unless Options.Compiler is a
// [pjrt.TopologyCompiler]. If reportFile is not empty, the report is also written to this file: as
// a page if its name ends in .html or .htm, and as JSON otherwise. Long compilations report their
// progress to Options.Notes every ten seconds. The caller must finalize the backend before closing
// the slice.
func NewAheadOfTime(slice *system.Slice, reportFile string, opts Options) (*Backend, error) {
	if err := slice.Check(); err != nil {
		return nil, failed("NewAheadOfTime", "", err)
	}
	a := &aheadTarget{target: report.TargetOf(slice.Info()), file: reportFile, line: lineTo(opts.Notes)}
	var err error
	if opts.Compiler, err = opts.aheadCompiler(a.line); err != nil {
		return nil, failed("NewAheadOfTime", "", err)
	}
	return newAhead(a, lowering.TargetTPU, slice.Topology(), opts, func(of engine.Options) (*engine.Runtime, error) { return engine.Describe(slice, of), nil })
}

// lineTo returns a progress line that writes to notes, which may be nil.
func lineTo(notes io.Writer) *progress.Line {
	if notes == nil {
		notes = io.Discard
	}
	return progress.NewLine(notes, progress.Options{Record: progress.DefaultRecordFile()})
}

// aheadCompiler returns the compiler for a slice, or nil to compile in this process.
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

// newAheadOnCPU is NewAheadOfTime for the devices of a CPU system. It does not run the compiled
// programs either.
func newAheadOnCPU(sys *system.System, reportFile string, opts Options) (*Backend, error) {
	topology := sys.Topology()
	a := &aheadTarget{file: reportFile, line: lineTo(opts.Notes)}
	a.target = report.Target{Name: fmt.Sprintf("cpu:%d", topology.NumDevices()), Kind: "cpu", Devices: topology.NumDevices(), Platform: sys.Client().PlatformVersion()}
	load := sys.Client().Compile
	if opts.Worker != nil {
		w, err := worker.New(worker.Options{Command: opts.Worker, OnStart: a.line.SetProcess})
		if err != nil {
			return nil, failed("NewAheadOfTime", "", err)
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
	return newAhead(a, lowering.TargetCPU, topology, opts, func(of engine.Options) (*engine.Runtime, error) {
		return engine.Compiling(topology, "cpu", compile, of), nil
	})
}

// newAhead returns a backend that compiles for the devices of topology.
func newAhead(a *aheadTarget, target lowering.Target, topology tpu.Topology, opts Options, machine func(engine.Options) (*engine.Runtime, error)) (*Backend, error) {
	b := &Backend{opts: opts, ahead: a}
	if err := b.open(context.Background(), topology, target, "ahead of time for "+a.target.String(), machine); err != nil {
		return nil, err
	}
	a.host.life = b.runtime.Life
	a.host.opts = Options{Name: b.opts.Name, Target: b.opts.Target, Precision: opts.Precision, Random: opts.Random}
	b.owned = append(b.owned, a.host.Close)
	return b, nil
}

// ahead opens a backend for the option topology=.
func (c *config) ahead(ctx context.Context, opts Options) (*Backend, error) {
	fail := func(option string, err error) error {
		return wrong(c.text, option, "it cannot be followed", "", err)
	}
	if c.report != "" {
		if info, err := os.Stat(filepath.Dir(c.report)); err != nil || !info.IsDir() {
			return nil, fail("report", errors.Join(err, fmt.Errorf("%s is no directory", filepath.Dir(c.report))))
		}
	}
	path := ""
	if filepath.IsAbs(c.plugin) {
		path = c.plugin
	}
	if n := cpuDevices(c.topology); n > 0 {
		sys, err := system.Open(ctx, system.Options{CPUDevices: n, Plugin: path})
		if err != nil {
			return nil, fail("topology", err)
		}
		return c.over(n, opts, func(opts Options) (*Backend, error) { return newAheadOnCPU(sys, c.report, opts) }, sys.Close)
	}
	slice, err := system.Describe(ctx, c.topology, system.DescribeOptions{Plugin: path})
	if err != nil {
		return nil, fail("topology", err)
	}
	return c.over(slice.Info().Devices, opts, func(opts Options) (*Backend, error) {
		planned, err := c.planned(slice, opts)
		if err != nil {
			return nil, err
		}
		b, err := NewAheadOfTime(slice, c.report, opts)
		if err == nil {
			b.ahead.plan = planned
		}
		return b, err
	}, slice.Close)
}

// executeAhead implements Execute for a backend that compiles ahead of time.
func (e *Executable) executeAhead(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	b, p := e.backend, e.state.program
	data, variables := false, false
	for _, name := range p.ParameterNames[:givenParameters(p)] {
		data, variables = data || !isVariable(name), variables || isVariable(name)
	}
	if data && variables {
		stopped := e.state.report(donate)
		if of := (*AheadOfTimeError)(nil); b.opts.Stopped != nil && errors.As(stopped, &of) {
			b.ahead.stop.Do(func() { b.opts.Stopped(of) })
		}
		return nil, stopped
	}
	var values []promise
	for i, input := range inputs {
		h := input.(*Buffer).memory
		v, err := h.value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if donate[i] {
			h.give(nil, false)
		}
	}
	var out []compute.Buffer
	for r, result := range b.ahead.host.results(p, values) {
		buf, err := b.newBuffer(&memory{backend: b, shape: p.Outputs[r].Clone(), later: result})
		if err != nil {
			return nil, err
		}
		out = append(out, buf)
	}
	return out, nil
}

// report compiles the program ahead of time, once per set of donated parameters, and returns the
// error with the report.
func (c *executableState) report(donated []bool) error {
	mask, key := c.useful(donated)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.variants == nil {
		return ErrFinalized
	}
	if c.reported == nil {
		c.reported = map[string]error{}
	}
	if c.reported[key] == nil {
		c.reported[key] = c.ahead(mask)
	}
	return c.reported[key]
}

// ahead searches for a plan, or compiles.
func (c *executableState) ahead(donated []bool) error {
	a := c.backend.ahead
	if a.plan == nil {
		return c.compileAhead(donated)
	}
	stopped := &AheadOfTimeError{Program: c.program.Name, Topology: a.target.Name, File: a.plan.file}
	stopped.Plans, stopped.Err = c.plan(donated)
	return stopped
}

func (c *executableState) compileAhead(donated []bool) error {
	b, a := c.backend, c.backend.ahead
	start := time.Now()
	frame, _ := c.frame(donated)
	m, err := spmd.AssembleGlobal(c.program, frame)
	if err != nil {
		return err
	}
	lowered := time.Since(start)
	stopped := &AheadOfTimeError{Program: c.program.Name, Topology: a.target.Name, Explanation: explain(c.program.Name, m, c.places, b.opts.Rules)}
	start = time.Now()
	now := phase.Phase{Name: c.program.Name, Stage: phase.Compiling, Target: a.target.Name, Replicas: b.mesh.Size() / b.logical.Size(), LogicalDevices: b.logical.Size(), TextBytes: len(m.Text)}
	a.line.SetPhase(now)
	x, _, err := b.runtime.Build(b.runtime.Life, c.program.Name, pjrt.Program{Code: m.Text, Trusted: true}, b.runtime.Options(1), nil)
	now.Stage, now.Err = phase.Done, err
	a.line.SetPhase(now)
	in := report.Input{Target: a.target, Refused: report.RefusalOf(err), LoweringSeconds: lowered.Seconds(), CompilingSeconds: time.Since(start).Seconds()}
	if b.opts.RulesName != "" {
		in.Options = map[string]string{"rules": b.opts.RulesName}
	}
	for _, argument := range m.Arguments {
		if isVariable(argument.Name) {
			state, _ := b.opts.Rules.StateFor(argument.Name, argument.GlobalDims)
			in.Settings.StateSharding = max(in.Settings.StateSharding, state)
		}
	}
	stopped.Err = err
	switch {
	case err == nil:
		in.Program = x.(engine.OfflineProgram).Executable
		laidOut(m, frame, in.Program)
		stopped.Explanation = explain(c.program.Name, m, c.places, b.opts.Rules)
	case in.Refused == nil:
		return stopped
	}
	r, err := reportOf(c.program.Name, m, in)
	if err != nil {
		stopped.Err = cmp.Or(stopped.Err, err)
		return stopped
	}
	stopped.Explanation.Report = r
	if b.opts.Explain != nil {
		b.opts.Explain(stopped.Explanation)
	}
	if a.file != "" {
		stopped.File = a.file
		stopped.Err = errors.Join(stopped.Err, files.Replace(a.file, func(w io.Writer) error {
			if strings.HasSuffix(a.file, ".html") || strings.HasSuffix(a.file, ".htm") {
				return r.WriteHTML(w)
			}
			return writeJSON(w, r)
		}))
	}
	return stopped
}

// laidOut sets the layouts that the partitioner chose for the open results, as far as the compiled
// program contains them. Other open results remain replicated in the report.
func laidOut(m *spmd.Module, frame spmd.GlobalSignature, exe *pjrt.Executable) {
	ops, err := outputShardings(exe, len(m.Results))
	if err != nil {
		return
	}
	for i := range m.Results {
		x := &m.Results[i]
		if !frame.Results[i].AutoSharded {
			continue
		}
		spec, err := sharding.SpecOf(m.Mesh, ops[i], len(x.GlobalDims))
		if err != nil {
			continue
		}
		if shard, err := sharding.ShardShape(m.Mesh, spec, x.GlobalDims); err == nil {
			x.Spec, x.ShardDims = spec, shard
		}
	}
}
