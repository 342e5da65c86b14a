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

// Node is a node of the graph of a step.
type Node = graph.Node

// Program is a step at one size. It has either a Loss, for a training step, or a Forward function.
type Program struct {
	// Inputs describes the tensors of a global batch. Dimension 0 is split over the replicas.
	Inputs []Input
	// Loss returns the mean over the rows of a replica.
	Loss    func(rc *strategy.ReplicaContext, in []*Node) *Node
	Forward func(rc *strategy.ReplicaContext, in []*Node) []*Node
	// Optimizer returns the optimizer of a training step. The default is Adam.
	Optimizer func() optimizer.Interface
	// Splits returns the sharding rules of the variables for p logical devices. If it is nil, no
	// variable is sharded.
	Splits func(p int) logical.Rules
}

// Input describes a tensor of the batch.
type Input struct {
	Shape shapes.Shape
	// Below is the exclusive upper bound of random integers.
	Below int
}

// Entry is a program at two sizes.
type Entry struct {
	Name        string
	Real, Small func() Program
	// Replicas and Logical are the mesh for which the program is compiled at its real size. Their
	// product is 8.
	Replicas, Logical int
	// Slice is the TPU slice of the ahead-of-time compilation.
	Slice string
	// Own is true if a loss depends on the assignment of rows to replicas, as with batch
	// statistics, or on random numbers. The losses of a mesh then differ from those on one device.
	Own bool
	// Quick is true if compiling the program at its real size is fast enough for every test run.
	Quick bool
	// Later is true if running the program at its small size is too slow for every test run, or if
	// another entry has the same small size.
	Later bool
}

func floats(dims ...int) Input { return Input{Shape: shapes.Make(dtypes.Float32, dims...)} }

// ints describes a tensor of random indices below a bound.
func ints(below int, dims ...int) Input {
	return Input{Shape: shapes.Make(dtypes.Int32, dims...), Below: below}
}

// compiler is implemented by training steps and functions.
type compiler interface {
	Lowered(ctx context.Context, args ...any) (*spmd.Module, error)
	Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error)
}

// Step returns the program as a training step of a strategy. The program must have a Loss.
func (p Program) Step(s *strategy.TPUStrategy, store *model.Store, name string) *train.Step {
	create := p.Optimizer
	if create == nil {
		create = func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }
	}
	step, err := train.New(s, store, create(), p.Loss, train.Options{Name: name})
	if err != nil {
		panic(err) // the program has no Loss
	}
	return step
}

// Function returns the program as a function of a strategy. The program must have a Forward
// function.
func (p Program) Function(s *strategy.TPUStrategy, store *model.Store, name string) *strategy.Function {
	return s.Function(p.Forward, strategy.FunctionOptions{Name: name, Store: store, SplitBatch: true})
}

func (p Program) compiler(s *strategy.TPUStrategy, store *model.Store, name string) compiler {
	if p.Loss == nil {
		return p.Function(s, store, name)
	}
	return p.Step(s, store, name)
}

// Lowered lowers the program for a strategy. It needs no data. It creates the program's variables
// in the store.
func (p Program) Lowered(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, name string) (*spmd.Module,
	error) {
	return p.compiler(s, store, name).Lowered(ctx, p.shapes()...)
}

// Compiled compiles the program for a strategy. It needs no data.
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

// Rules returns the sharding rules of the program's variables for the given number of logical
// devices.
func (p Program) Rules(logicalDevices int) logical.Rules {
	if p.Splits == nil || logicalDevices == 1 {
		return nil
	}
	return p.Splits(logicalDevices)
}

// columns returns a rule that splits the last dimension of the matching rank-2 variables. rows
// splits their first dimension.
func columns(p int, pattern string) logical.Rule {
	return logical.Match(pattern, logical.SplitInto(1, p))
}

func rows(p int, pattern string) logical.Rule { return logical.Match(pattern, logical.SplitInto(p, 1)) }
