package aot

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Step is a function that can be compiled: a *train.Step or a *strategy.Function.
type Step interface {
	Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error)
}

// Build creates the step to compile and its arguments. Most arguments are a shapes.Shape of the
// global batch. Build is called once for each topology, with a strategy for that topology, and must
// create a new store in each call.
type Build func(strat *strategy.TPUStrategy) (Step, []any, error)

// Main compiles the step that build returns, once for each topology of the flags. It prints the
// reports to standard output and errors to standard error, writes the requested files, and returns
// the exit code; see the package comment.
//
// opts are the strategy options of a run. The flags -replicas and -logical, if given, replace its
// numbers of replicas and logical devices. If opts.Compiler is nil, the compiler runs in a separate
// process. Main returns early on SIGINT, on SIGTERM and when ctx ends.
func (f *Flags) Main(ctx context.Context, opts strategy.Options, build Build) int {
	return f.run(ctx, opts, build, os.Stdout, os.Stderr)
}

// stopDelay is how long Main waits after a signal for code that ignores its context, such as a step
// function that is being traced.
const stopDelay = 500 * time.Millisecond

func (f *Flags) run(ctx context.Context, opts strategy.Options, build Build, stdout, stderr io.Writer) int {
	ctx, stop := command.UntilSignal(ctx)
	defer stop()
	r := &compileRun{flags: f, opts: f.ApplyPlan(opts), build: build, name: filepath.Base(os.Args[0])}
	if err := f.validate(); err != nil {
		return r.printError(stdout, stderr, err)
	}
	disablePluginLogs()
	r.progressLine = progress.NewLine(stderr, progress.Options{Prefix: r.name + ": ",
		Record: progress.DefaultRecordFile()})
	defer r.progressLine.Close()
	done := make(chan func() error, 1)
	go func() { done <- r.execute(ctx, stdout) }()
	var printResult func() error
	select {
	case printResult = <-done:
	case <-ctx.Done():
		select { // the compiler's process ends with ctx
		case <-done:
		case <-time.After(stopDelay):
		}
	}
	r.progressLine.Close()
	if ctx.Err() != nil {
		for _, path := range []string{f.Text, f.Save} {
			ahead.RemoveTemporary(path)
		}
		cause := command.Cause(ctx)
		_ = r.printError(stdout, stderr, &ahead.Failure{Category: "interrupted", Message: cause.Error()})
		return cause.Code()
	}
	if err := printResult(); err != nil {
		return r.printError(stdout, stderr, err)
	}
	return command.OK
}

// execute performs the compilations or the search. It returns a function that prints the result.
func (r *compileRun) execute(ctx context.Context, stdout io.Writer) (printResult func() error) {
	if r.flags.Plan != "" {
		result, err := r.searchPlans(ctx)
		return func() error { return r.printPlan(result, err, stdout) }
	}
	outcomes := r.compileTopologies(ctx)
	return func() error { return r.printReports(outcomes, stdout) }
}

func (r *compileRun) printReports(outcomes []ahead.Outcome, stdout io.Writer) error {
	err := ahead.WriteReports(r.flags.Report, outcomes)
	if showErr := ahead.WriteOutcomes(stdout, outcomes, r.flags.JSON); showErr != nil {
		err = outputError(showErr)
	}
	failure := ahead.FirstFailure(outcomes)
	if err != nil {
		failure = ahead.FailureOf(err)
	}
	if failure == nil {
		return nil
	}
	failure.Reported = true
	return failure
}

func outputError(err error) error {
	return &errkind.Fault{Op: "the output is incomplete", Err: err, Hint: "check the output device, and run again"}
}

// compileRun is the state of one call of Main.
type compileRun struct {
	flags        *Flags
	opts         strategy.Options
	build        Build
	name         string // name of the program
	progressLine *progress.Line
}

// printError prints an error and returns its exit code.
func (r *compileRun) printError(stdout, stderr io.Writer, err error) int {
	f := ahead.FailureOf(err)
	if r.flags.JSON && !f.Reported {
		_ = ahead.WriteJSON(stdout, map[string]any{"error": f})
	}
	fmt.Fprintf(stderr, "%s: %s\n", r.name, plain.EscapeText(f.Message))
	return f.Code()
}

func (r *compileRun) compileTopologies(ctx context.Context) (outcomes []ahead.Outcome) {
	for _, topology := range r.flags.topologies() {
		if ctx.Err() != nil {
			return nil
		}
		rep, err := r.compileTopology(ctx, topology)
		o := ahead.OutcomeOf(topology, rep, err)
		if o.Report != nil {
			o.Report.Options = r.flags.reportedOptions()
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// compileTopology compiles for one topology. A panic in build is returned as an error.
func (r *compileRun) compileTopology(ctx context.Context, topology string) (rep *report.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &errkind.Fault{Op: "building the step for " + topology,
				Reason: fmt.Sprintf("panic: %v\n%s", p, debug.Stack()), Class: errkind.InternalError}
		}
	}()
	opts, onPhase := r.opts, r.opts.Phases
	flags := r.flags.givenFlags()
	if flags["replicas"] != "" {
		opts.Replicas = r.flags.Replicas
	}
	if flags["logical"] != "" {
		opts.LogicalDevices = r.flags.Logical
	}
	opts.Phases = func(p phase.Phase) {
		if p.Stage != phase.Compiling {
			r.progressLine.SetProcess(0)
		}
		r.progressLine.SetPhase(p)
		if onPhase != nil {
			onPhase(p)
		}
	}
	if opts.Compiling == nil { // the progress line shows the compilation
		opts.Compiling = func(strategy.Compilation) {}
	}
	if opts.Compiler == nil {
		opts.Compiler, err = worker.New(worker.Options{Command: r.flags.worker, OnStart: r.progressLine.SetProcess})
		if err != nil {
			return nil, err
		}
	}
	strat, done, err := ahead.Open(ctx, topology, "", opts)
	if err != nil {
		return nil, err
	}
	defer done()
	step, args, err := r.buildStep(strat, topology)
	if err != nil {
		return nil, err
	}
	return ahead.Compile(ctx, step, args, ahead.Outputs{Text: r.flags.Text, Save: r.flags.Save,
		SuggestAnnotations: r.flags.SuggestAnnotations, Progress: r.progressLine.Update})
}

// disablePluginLogs disables the plugins' logs in this process and its children, unless the
// environment configures them.
func disablePluginLogs() {
	for _, setting := range [][2]string{{"TPU_LOG_DIR", "disabled"}, {"TPU_STDERR_LOG_LEVEL", "3"},
		{"TF_CPP_MIN_LOG_LEVEL", "2"}, {"TPU_MIN_LOG_LEVEL", "3"}} {
		if os.Getenv(setting[0]) == "" {
			_ = os.Setenv(setting[0], setting[1])
		}
	}
}
