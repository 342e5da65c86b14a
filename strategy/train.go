package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// LossFunc builds a replica's loss: a float scalar, the mean over the replica's
// batch. Some of GoMLX's losses, such as the cross-entropies, give a value for each
// example: take graph.ReduceAllMean. Of an uneven batch it is the mean over the
// replica's real rows without more ado; see [TrainStep.Run].
type LossFunc func(rc *ReplicaContext, in []*graph.Node) *graph.Node

// TrainOptions configure a training step. The zero value works.
type TrainOptions struct {
	// Name is for errors and profiles; "train_step" if empty.
	Name string
	// Arguments say how the batch's tensors are split over the logical devices, also
	// those that come as values; see [FunctionOptions.Arguments].
	Arguments []logical.Annotation
	// LocalBatch says that host tensors are not the global batch but the rows of
	// this process's replicas; see [FunctionOptions.LocalBatch].
	LocalBatch bool
	// NonFinite says what to do when the loss or a gradient is not finite. The zero
	// value takes the step.
	NonFinite NonFinite
}

// TrainStep is a training step: loss, gradients, one all-reduce for each gradient,
// and the optimizer's update of the variables. It is safe for concurrent use.
type TrainStep struct {
	function *Function

	mu    sync.Mutex
	steps map[string]*trainBound
	// last is the step that ran last, hosts are the tensors of the batch under
	// way, nil for values.
	last  *trainBound
	hosts []*tensors.Tensor
}

// TrainStep returns a training step of the model that loss builds, over the
// variables of store. The optimizer is any of GoMLX's that takes gradients
// (Adam and its kin, SGD); another one is an error of the first Run.
//
// It trains the trainable variables that the loss uses: those of the store, and those of
// [TPUStrategy.NewVariable] that it reads with [ReplicaContext.Read], if they are floats
// and mirrored. What the optimizer keeps for the latter, such as moments, is in the
// store below "/distributed", laid out like them. A trainable variable that is [OnRead]
// is an [*Error] of kind ValueError.
//
// Gradients and loss are averaged over the replicas, so that a global batch gives
// the step that one device would take on it, up to rounding.
//
// As in GoMLX's trainer, what the layers' regularizers add (parameters such as
// regularizer.ParamL2, train.AddRegularizationLoss) is part of the loss, and the
// updates that layers ask for after each step (train.AddPerStepUpdateGraphFn) are
// made.
func (s *TPUStrategy) TrainStep(store *model.Store, opt optimizer.Interface, loss LossFunc, opts ...TrainOptions) *TrainStep {
	var o TrainOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Name == "" {
		o.Name = "train_step"
	}
	guard := newGuard(o.NonFinite, o.Name)
	step := func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
		switch {
		case loss == nil:
			panic(errors.New("there is no loss function: it is nil"))
		case rc.scope == nil:
			panic(errors.New("there is no store of variables to train: it is nil"))
		}
		l := loss(rc, in)
		if l == nil {
			panic(errors.New("the loss function returned no node; return a float scalar, the mean over the replica's batch"))
		}
		if !l.IsScalar() || !l.DType().IsFloat() {
			panic(fmt.Errorf("the loss is %s; return a float scalar, the mean over the replica's batch", l.Shape()))
		}
		l = rc.weighted(regularized(l))
		rows, _ := rc.rows()
		update, ok := opt.(train.OptimizeWithGradients)
		if !ok {
			panic(fmt.Errorf("optimizer %T does not take gradients; use one of the Adam family or SGD", opt))
		}
		scope := rc.scope
		rc.settleStandIns()
		gradients := scope.BuildTrainableVariablesGradientsGraph(l)
		if len(gradients) == 0 {
			panic(fmt.Errorf("the loss uses no trainable variable: none of the store, and reads none of the scope"))
		}
		for i, gradient := range gradients {
			if rows != nil { // what has no rows has no mean, nor gradients of it
				gradient = rc.ifRows(rows, gradient, graph.ZerosLike(gradient))
			}
			gradients[i] = rc.AllReduce(Mean, gradient)
		}
		var mean *graph.Node
		if guard != nil {
			mean = rc.AllReduce(Mean, l)
			guard.build(rc, mean, gradients)
		}
		update.UpdateGraphWithGradients(scope, gradients, l.DType())
		train.ExecPerStepUpdateGraphFn(rc.graph)
		rc.keepStates(rows)
		if mean == nil {
			mean = rc.AllReduce(Mean, l)
		}
		return []*graph.Node{mean}
	}
	return &TrainStep{
		function: s.Function(step, FunctionOptions{
			Name: o.Name, Store: store, Training: true, Arguments: o.Arguments, SplitBatch: true, LocalBatch: o.LocalBatch,
			mirroredResults: true, wholeModel: true, PadRagged: true, guard: guard,
		}),
		steps: map[string]*trainBound{},
	}
}

// regularized adds the regularization terms of the graph's layers to the loss,
// unless the loss function has done so itself.
func regularized(l *graph.Node) *graph.Node {
	terms := train.GetRegularizationLoss(l.Graph())
	if terms == nil {
		return l
	}
	seen := map[*graph.Node]bool{}
	var within func(n *graph.Node) bool
	within = func(n *graph.Node) bool {
		if n == terms {
			return true
		}
		if seen[n] {
			return false
		}
		seen[n] = true
		return slices.ContainsFunc(n.Inputs(), within)
	}
	if within(l) {
		return l
	}
	return graph.Add(l, graph.ConvertDType(terms, l.DType()))
}

// Run takes one training step on a global batch and returns its loss, averaged
// over the replicas. The arguments are the in of the [LossFunc], one tensor each. A
// host tensor is cut along dimension 0 among the replicas and copied (as in
// [TPUStrategy.Mirror]); a *[PerReplica] is the replicas' batches as they are.
//
// A batch that does not divide among the replicas is cut as TensorFlow cuts it: of 3
// rows 2 replicas receive 2 and 1, of 1 row 1 and none. It is padded, and the padding
// left out as [FunctionOptions].PadRagged says; each replica's loss and gradients are
// weighted by its rows, so that they are the means over the rows of the whole batch.
// Layers' averages, such as a batch normalisation's, are weighted likewise, and a
// replica without rows leaves its own states as they are. Such a batch, and values
// whose replicas have different rows, have a program of their own: that of even batches
// is what it is without them. The loss must be a mean over rows; a sum is weighted just
// so. With several processes batches must divide.
//
// Run returns when the work is under way. The loss belongs to the step: the next
// Run overwrites it, so read it before, or leave it: reading waits for the step. A
// loss that another goroutine reads at that moment is left to it, and closed.
//
// With several processes each gives the whole batch, or its own rows if
// [TrainOptions] say so. Errors: [*ArgumentError] for an argument, [*TraceError] for
// the step, [ErrClosed], and those of the compiler for a new signature. After an
// error no step was taken.
func (t *TrainStep) Run(ctx context.Context, batch ...any) (*Mirrored, error) {
	if err := untraced(ctx, t.function.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.function.strategy
	if err := s.runnable("running a training step"); err != nil {
		return nil, err
	}
	if s.isClosed.Load() {
		return nil, ErrClosed
	}
	batch, release, err := s.lift(ctx, t.function.opts.Name, batch)
	if err != nil {
		return nil, err
	}
	defer release()
	if !t.laidOut(batch) {
		laid, release, err := t.layOut(ctx, batch)
		if err != nil {
			return nil, err
		}
		defer release()
		batch = laid
	}
	if err := t.read(batch); err != nil {
		return nil, err
	}
	if t.uneven(batch) {
		clear(t.hosts)
		return t.runUneven(ctx, batch)
	}
	b, err := t.bind(ctx, batch)
	defer clear(t.hosts) // they are the caller's, not ours to keep
	if err != nil {
		return nil, err
	}
	if err := b.fill(ctx, batch, t.hosts); err != nil {
		return nil, err
	}
	if err := b.bound.Launch(ctx); err != nil {
		return nil, err
	}
	return b.bound.Results()[0].(*Mirrored), nil
}

// Compiled returns the compiled step for batches like this one.
func (t *TrainStep) Compiled(ctx context.Context, batch ...any) (*Compiled, error) {
	return t.function.Compiled(ctx, batch...)
}

// Lowered traces and lowers the step for batches like this one, without compiling
// it.
func (t *TrainStep) Lowered(ctx context.Context, batch ...any) (*module.Module, error) {
	return t.function.Lowered(ctx, batch...)
}

// Bind fixes the step's batch, for a loop over resident data; see [Bound].
func (t *TrainStep) Bind(ctx context.Context, batch ...any) (*Bound, error) {
	return t.function.Bind(ctx, batch...)
}
