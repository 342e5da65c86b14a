package corpus

import (
	"context"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Node is a value in a step.
type Node = graph.Node

// Program is a step at one size. It has a Loss, and is then a training step, or a
// Forward.
type Program struct {
	// Inputs are the tensors of a global batch: dimension 0 is cut among the replicas.
	Inputs []Input
	// Loss is the mean over a replica's rows.
	Loss    func(rc *strategy.ReplicaContext, in []*Node) *Node
	Forward func(rc *strategy.ReplicaContext, in []*Node) []*Node
	// Optimizer is that of a training step; nil is Adam.
	Optimizer func() optimizer.Interface
	// Splits say how the variables are split over p logical devices; nil splits none.
	Splits func(p int) logical.Rules
}

// Input is a tensor of the batch.
type Input struct {
	Shape shapes.Shape
	// Below is the bound of integers: those of the input are from 0 to Below-1.
	Below int
}

// Entry is a program at its two sizes.
type Entry struct {
	Name        string
	Real, Small func() Program
	// Mesh is the number of replicas, and of the logical devices of each, for which it is
	// compiled at its real size. Their product is 8.
	Replicas, Logical int
	// Slice is what it is compiled for ahead of time.
	Slice string
	// Own says that a loss depends on which rows a replica has, as with the statistics of
	// a batch, or on random numbers: then replicas do not add up to one device.
	Own bool
	// Quick says that compiling it at its real size takes little enough for each run of
	// the tests.
	Quick bool
	// Later says the same does not hold of running it at its small size, or that another
	// entry has this small size.
	Later bool
}

func floats(dims ...int) Input { return Input{Shape: shapes.Make(dtypes.Float32, dims...)} }

// ints are indices below a bound.
func ints(below int, dims ...int) Input {
	return Input{Shape: shapes.Make(dtypes.Int32, dims...), Below: below}
}

// compiler is a training step or a function.
type compiler interface {
	Lowered(ctx context.Context, args ...any) (*spmd.Module, error)
	Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error)
}

// Step returns the program as a training step of a strategy; it has a loss.
func (p Program) Step(s *strategy.TPUStrategy, store *model.Store, name string) *train.Step {
	create := p.Optimizer
	if create == nil {
		create = func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }
	}
	step, err := train.New(s, store, create(), p.Loss, train.Options{Name: name})
	if err != nil {
		panic(err) // the program has no loss
	}
	return step
}

// Function returns a program without a loss as a function of a strategy.
func (p Program) Function(s *strategy.TPUStrategy, store *model.Store, name string) *strategy.Function {
	return s.Function(p.Forward, strategy.FunctionOptions{Name: name, Store: store, SplitBatch: true})
}

func (p Program) compiler(s *strategy.TPUStrategy, store *model.Store, name string) compiler {
	if p.Loss == nil {
		return p.Function(s, store, name)
	}
	return p.Step(s, store, name)
}

// Lowered is the program's text for a strategy, of shapes alone. The store gets the
// program's variables.
func (p Program) Lowered(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, name string) (*spmd.Module,
	error) {
	return p.compiler(s, store, name).Lowered(ctx, p.shapes()...)
}

// Compiled compiles the program for a strategy, of shapes alone.
func (p Program) Compiled(ctx context.Context, s *strategy.TPUStrategy, store *model.Store,
	name string) (*strategy.CompiledStep, error) {
	return p.compiler(s, store, name).Compiled(ctx, p.shapes()...)
}

func (p Program) shapes() (all []any) {
	for _, in := range p.Inputs {
		all = append(all, in.Shape)
	}
	return all
}

// Rules are the program's variable rules for a replica of p logical devices.
func (p Program) Rules(logicalDevices int) logical.Rules {
	if p.Splits == nil || logicalDevices == 1 {
		return nil
	}
	return p.Splits(logicalDevices)
}

// columns splits the last dimension of the rank-2 variables that match, rows the first.
func columns(p int, pattern string) logical.Rule {
	return logical.Match(pattern, logical.SplitInto(1, p))
}

func rows(p int, pattern string) logical.Rule { return logical.Match(pattern, logical.SplitInto(p, 1)) }
