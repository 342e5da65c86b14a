package ahead

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/plan"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Planned is the step of a program as a search for a plan sees it: a [plan.Step].
type Planned struct {
	// Slices are those of the plans, by name.
	Slices map[string]*system.Slice
	// Options are those of the strategies, but for what a plan says.
	Options strategy.Options
	// Build makes the step and its arguments for a strategy with the settings of a plan.
	Build func(strat *strategy.TPUStrategy, settings map[string]string) (Step, []any, error)
	// With sets options of the strategy by a plan's settings; nil sets none.
	With func(opts *strategy.Options, settings map[string]string)
	// Compiler answers what programs take.
	Compiler *probe.Compiler

	mu       sync.Mutex
	programs map[string]probe.Program // by plan
}

// Sketch makes the program of a plan.
func (s *Planned) Sketch(ctx context.Context, p plan.Plan) (sketch plan.Sketch, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &errkind.Fault{Op: "building the step for " + p.String(), Reason: fmt.Sprintf("panic: %v\n%s", r, debug.Stack()), Class: errkind.InternalError}
		}
	}()
	slice := s.Slices[p.Slice]
	if slice == nil {
		return sketch, &errkind.Fault{Op: "plan", Reason: "there is no slice " + p.Slice, Class: errkind.NotFoundError}
	}
	key, err := keyOf(p)
	if err != nil {
		return sketch, err
	}
	opts, keeps := s.Options, &keeper{}
	opts.Replicas, opts.LogicalDevices, opts.LogicalAxes, opts.Variables, opts.Compiler = p.Replicas, 0, p.Axes, p.Rules, keeps
	opts.Compiling = func(strategy.Compilation) {}
	if s.With != nil {
		s.With(&opts, p.Settings)
	}
	strat, err := strategy.NewAheadOfTime(slice, opts)
	if err != nil {
		return sketch, err
	}
	defer strat.Close()
	step, args, err := s.Build(strat, p.Settings)
	if err != nil {
		return sketch, err
	}
	compiled, err := step.Compiled(ctx, args...)
	if err != nil {
		return sketch, err
	}
	r, err := compiled.Report()
	if err != nil {
		return sketch, err
	}
	program := probe.Program{Slice: slice, Program: keeps.program, Options: keeps.options, Replicas: p.Replicas, Logical: p.Logical()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		s.programs = map[string]probe.Program{}
	}
	s.programs[key] = program
	sketch = probe.Sketch(program, r)
	for i, a := range compiled.Module.Arguments {
		if compiled.Variables[i] {
			sketch.Variables = append(sketch.Variables, plan.Variable{Path: a.Name, Dims: whole(a)})
		}
	}
	for _, arg := range args {
		if shape, ok := arg.(shapes.Shape); ok && shape.Rank() > 0 {
			sketch.Rows = max(sketch.Rows, shape.Dimensions[0])
		}
	}
	return sketch, nil
}

// whole is the shape of a whole variable.
func whole(a spmd.Placed) []int { return a.Over.Wholes(a.Local) }

// Probe probes the program of a plan that was sketched.
func (s *Planned) Probe(ctx context.Context, p plan.Plan) (plan.Figures, error) {
	program, err := s.program(p)
	if err != nil {
		return plan.Figures{}, err
	}
	return s.Compiler.Probe(ctx, program)
}

// Compile compiles the program of a plan that was sketched.
func (s *Planned) Compile(ctx context.Context, p plan.Plan) (plan.Figures, error) {
	program, err := s.program(p)
	if err != nil {
		return plan.Figures{}, err
	}
	return s.Compiler.Compile(ctx, program)
}

func (s *Planned) program(p plan.Plan) (probe.Program, error) {
	key, err := keyOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	program, known := s.programs[key]
	if err == nil && !known {
		err = &errkind.Fault{Op: "plan", Subject: p.String(), Reason: "it was not sketched", Class: errkind.FailedPreconditionError}
	}
	return program, err
}

// keyOf is equal for plans that are. Plans with rules that have no JSON form are refused: the result of a
// search is a file.
func keyOf(p plan.Plan) (string, error) {
	key, err := json.Marshal(p)
	return string(key), err
}

// keeper stands where a strategy compiles, keeps the program and compiles nothing.
type keeper struct {
	program pjrt.Program
	options pjrt.CompileOptions
}

// Compile is never called: the slice is only described.
func (k *keeper) Compile(context.Context, *pjrt.Client, pjrt.Program, pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	return nil, &errkind.Fault{Op: "plan", Reason: "a plan is for a slice that is described", Class: errkind.NotImplementedError}
}

// CompileTopology returns a program of which nothing is known.
func (k *keeper) CompileTopology(_ context.Context, _ *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	k.program, k.options = program, opts
	return pjrt.ExecutableRecord{}.Executable(), nil
}

// Search is a search for a plan over slices that are described.
type Search struct {
	// Topologies are the names of the slices, and Plugin is the path of theirs, or empty.
	Topologies []string
	Plugin     string
	// Space is what is searched, without the slices, and Options say for what.
	Space   plan.Space
	Options plan.Options
	// Prices are those of chips.
	Prices plan.Prices
	// Worker is the command of a process that compiles, and Folder keeps what they answer.
	Worker []string
	Folder string
	// Step makes the step; its Slices and Compiler are the search's.
	Step *Planned
}

// Run searches.
func (s Search) Run(ctx context.Context) (*plan.Result, error) { return s.of(ctx, plan.Space.Plans) }

// of searches the plans of the space that are taken.
func (s Search) of(ctx context.Context, plans func(plan.Space) []plan.Plan) (*plan.Result, error) {
	compiler, err := worker.New(worker.Options{Command: s.Worker})
	if err != nil {
		return nil, err
	}
	s.Step.Compiler, s.Step.Slices = &probe.Compiler{Worker: compiler, Folder: s.Folder}, map[string]*system.Slice{}
	prices := map[string]float64{}
	for _, name := range s.Topologies {
		slice, err := Describe(ctx, name, s.Plugin)
		if err != nil {
			return nil, err
		}
		defer slice.Close()
		facts := slice.Facts()
		if s.Step.Slices[facts.Name] != nil {
			continue
		}
		s.Step.Slices[facts.Name] = slice
		s.Space.Slices = append(s.Space.Slices, plan.Slice{Name: facts.Name, Devices: facts.Devices})
		if g, ok := tpu.GenerationOfKind(facts.Kind); ok {
			if dollars, _, known := s.Prices.Of(g.Name, facts.Chips); known {
				prices[facts.Name] = dollars
			}
		}
	}
	s.Options.Dollars = func(slice string) (float64, bool) { d, known := prices[slice]; return d, known }
	return plan.Search(ctx, plans(s.Space), s.Step, s.Options)
}

// WritePlan writes the best plan of a result, which was reported or not, to a file; an empty path is none.
// Its error says why there is none.
func WritePlan(path string, r *plan.Result, reported bool) error {
	best, err := r.Best()
	if err != nil {
		return &Failure{Sort: map[bool]string{true: "memory", false: "failed"}[errkind.Of(err) == errkind.ResourceExhaustedError], Message: err.Error(), Reported: reported}
	}
	if path == "" {
		return nil
	}
	return WriteFile(path, func(w io.Writer) error { return WriteJSON(w, best.Plan) })
}
