package ahead

import (
	"context"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Search is a search for the best plan on one of several slices.
type Search struct {
	// Topologies are the names of the slices. Plugin is the path of the plugin, or "".
	Topologies []string
	Plugin     string
	// Space is the search space without the slices. Options are the options of the search.
	Space   plan.Space
	Options plan.Options
	// Prices are the prices of chips.
	Prices plan.Prices
	// Worker is the command line of the compiler's process. CacheDir is the folder for its results.
	Worker   []string
	CacheDir string
	// StrategyOptions are the options of the strategies; a plan replaces some of them.
	StrategyOptions strategy.Options
	// Build returns the step and its arguments for a strategy and the settings of a plan.
	Build func(strat *strategy.TPUStrategy, settings map[string]string) (Step, []any, error)
	// SetOptions sets options of the strategy from the settings of a plan. It may be nil.
	SetOptions func(opts *strategy.Options, settings map[string]string)
	// Kernel is the name of a function that predictions treat as one kernel; see hlo.Parse. It
	// may be empty.
	Kernel string

	slices map[string]*system.Slice // described slices by name
}

// Run runs the search.
func (s Search) Run(ctx context.Context) (*plan.Result, error) {
	return s.searchPlans(ctx, plan.Space.Plans)
}

// searchPlans runs the search with the plans that selectPlans returns for the search space.
func (s Search) searchPlans(ctx context.Context, selectPlans func(plan.Space) []plan.Plan) (*plan.Result, error) {
	compiler, err := worker.New(worker.Options{Command: s.Worker})
	if err != nil {
		return nil, err
	}
	s.slices = map[string]*system.Slice{}
	step := &probe.Step{Compiler: &probe.Compiler{Worker: compiler, CacheDir: s.CacheDir}, Build: s.buildProgram}
	prices := map[string]float64{}
	for _, name := range s.Topologies {
		slice, err := Describe(ctx, name, s.Plugin)
		if err != nil {
			return nil, err
		}
		defer slice.Close()
		facts := slice.Info()
		if s.slices[facts.Name] != nil {
			continue
		}
		s.slices[facts.Name] = slice
		s.Space.Slices = append(s.Space.Slices, plan.Slice{Name: facts.Name, Devices: facts.Devices})
		if g, ok := tpu.GenerationForDeviceKind(facts.Kind); ok {
			if dollars, _, known := s.Prices.HourlyPrice(g.Name, facts.Chips); known {
				prices[facts.Name] = dollars
			}
		}
	}
	s.Options.HourlyPrice = func(slice string) (float64, bool) { d, known := prices[slice]; return d, known }
	return plan.Search(ctx, selectPlans(s.Space), step, s.Options)
}

// buildProgram traces and lowers the step for a plan, without compiling the program.
func (s Search) buildProgram(ctx context.Context, p plan.Plan) (built probe.BuiltStep, err error) {
	opts, recorder := s.StrategyOptions, &programRecorder{}
	opts.Replicas, opts.LogicalDevices, opts.LogicalAxes = p.Replicas, 0, p.Axes
	opts.Variables, opts.Compiler = p.Rules, recorder
	opts.Compiling, opts.Phases = func(strategy.Compilation) {}, nil
	if s.SetOptions != nil {
		s.SetOptions(&opts, p.Settings)
	}
	strat, err := strategy.NewAheadOfTime(s.slices[p.Slice], opts)
	if err != nil {
		return built, err
	}
	defer strat.Close()
	step, args, err := s.Build(strat, p.Settings)
	if err != nil {
		return built, err
	}
	compiled, err := step.Compiled(ctx, args...)
	if err != nil {
		return built, err
	}
	built.Program = probe.Program{Slice: s.slices[p.Slice], Program: recorder.program, Options: recorder.options,
		Replicas: p.Replicas, Logical: p.Logical()}
	if s.Kernel != "" {
		built.Module, built.Kernels = compiled.Module, []string{s.Kernel}
	}
	for i, a := range compiled.Module.Arguments {
		if compiled.Variables[i] {
			built.Variables = append(built.Variables, plan.Variable{Path: a.Name,
				Dims: a.ReplicaShard.UnshardedDims(a.LocalDims)})
		}
	}
	for _, arg := range args {
		if shape, ok := arg.(shapes.Shape); ok && shape.Rank() > 0 {
			built.Rows = max(built.Rows, shape.Dimensions[0])
		}
	}
	built.Report, err = report.Of(compiled)
	return built, err
}

// programRecorder is a compiler that records the program and compiles nothing.
type programRecorder struct {
	program pjrt.Program
	options pjrt.CompileOptions
}

// Compile returns an error, because the slice has no devices.
func (k *programRecorder) Compile(context.Context, *pjrt.Client, pjrt.Program,
	pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	return nil, &errkind.Fault{Op: "plan", Reason: "a plan is for a slice that is described",
		Class: errkind.NotImplementedError}
}

// CompileTopology records the program and returns an empty executable.
func (k *programRecorder) CompileTopology(_ context.Context, _ *pjrt.Topology, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	k.program, k.options = program, opts
	return pjrt.ExecutableRecord{}.Executable(), nil
}

// WritePlan writes the best plan of a result to a file, unless path is empty. It returns an error
// if there is no usable plan. reported means that the result, including the reason of the error,
// was already printed.
func WritePlan(path string, result *plan.Result, reported bool) error {
	best, err := result.Best()
	if err != nil {
		return &Failure{Category: map[bool]string{true: "memory",
			false: "failed"}[errkind.KindOf(err) == errkind.ResourceExhaustedError], Message: err.Error(), Reported: reported}
	}
	if path == "" {
		return nil
	}
	return WriteFile(path, best.Plan.Write)
}
