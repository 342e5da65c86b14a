package train

import (
	"reflect"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A training step is built in stages. Each stage adds its part to the graph of a replica. The
// options select the stages.

// stage adds a part of a training step to its graph. It panics with its error.
type stage func(p *pass)

// pass is the state of one trace that the stages share.
type pass struct {
	*trainer
	in []*graph.Node
	// own is the mean loss of the replica's rows. loss is scaled so that the mean over the replicas
	// is the loss of the batch. sum and weight are those of a weighted loss, and divisor is the
	// number by which the sum was divided. They are nil for any other loss.
	own, loss            *graph.Node
	sum, weight, divisor *graph.Node
	// gradients are those of the replica, and after the reduce stage their means over the replicas.
	// trained are the names of the gradients' variables.
	gradients []*graph.Node
	trained   []string
	mean      *graph.Node // cache of meanLoss
	// norm is the gradients' norm, if it is computed before the check for non-finite values. before
	// are the trained variables before the update, for the update norm. rate is the learning rate
	// of a schedule.
	norm   *graph.Node
	before []*graph.Node
	rate   *graph.Node
	// recorder accumulates the step's metrics. It is nil for a step without metrics.
	recorder *recorder
	// what and gradient are the cached results of nonFinite.
	what, gradient *graph.Node
	// scaling is the loss scaler, and scaled the scaled loss; both are nil without a loss scale.
	// overflow is nil without a dynamic loss scale.
	scaling  *stepScaler
	scaled   *graph.Node
	overflow *overflow
}

// meanLoss returns the loss averaged over the replicas.
func (p *pass) meanLoss() *graph.Node {
	if p.mean == nil {
		p.mean = p.rc.AllReduce(strategy.Mean, p.loss)
	}
	return p.mean
}

// newStepFunc returns a step function that runs the stages and returns the mean loss.
func newStepFunc(stages []stage) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		p := &pass{trainer: newTrainer(rc), in: in}
		defer p.drop()
		p.begin()
		for _, add := range stages {
			add(p)
		}
		loss := p.meanLoss()
		p.finish()
		return []*graph.Node{loss}
	}
}

// forward returns the stage that builds the loss under the policy.
func forward(loss Loss, policy precision.Policy) stage {
	return func(p *pass) {
		p.reduceIn, p.common.Weighted = policy.Reduce, [2]*graph.Node{}
		var sum *graph.Node
		l := policy.Forward(p.rc.Graph(), p.in, func(in []*graph.Node) []*graph.Node {
			sum = loss(p.rc, in)
			return []*graph.Node{sum}
		})[0]
		const scalar = "return a float scalar, the mean over the replica's batch"
		if l == nil {
			panicInvalid(scalar, "the loss function returned no node")
		}
		if !l.IsScalar() || !l.DType().IsFloat() {
			panicInvalid(scalar, "the loss is %s", l.Shape())
		}
		if p.weight = p.weightOf(sum); p.weight == nil {
			p.own = addRegularizers(l, nil)
			return
		}
		p.sum = addRegularizers(sum, p.weight) // in the dtype of sum, not in the policy's
		p.own = graph.Div(p.sum, oneIfZero(p.weight))
	}
}

// addRegularizers adds the regularization terms of the graph's layers to the loss, unless the loss
// already contains them. If weight is not nil, the terms are multiplied by it.
func addRegularizers(l, weight *graph.Node) *graph.Node {
	terms := gomlxtrain.GetRegularizationLoss(l.Graph())
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
	terms = graph.ConvertDType(terms, l.DType())
	if weight != nil {
		terms = graph.Mul(terms, weight)
	}
	return graph.Add(l, terms)
}

// backward is the stage that builds the gradients of the loss.
func backward(p *pass) {
	loss := p.loss
	if p.scaled != nil {
		loss = p.scaled
	}
	p.gradients = p.computeGradients(loss)
	p.trained = p.paths(p.variables())
	if len(p.gradients) == 0 {
		panicInvalid("use a variable of the store in it, or read one of the strategy",
			"the loss uses no trainable variable: none of the store, and reads none of the scope")
	}
}

// reduce returns the stage that averages the gradients over the replicas in the policy's dtype.
// After it, gradients of variables with sharded state are shards of the means.
func reduce(policy precision.Policy) stage {
	return func(p *pass) {
		in := make([]*graph.Node, len(p.gradients))
		for i, gradient := range p.gradients {
			in[i] = policy.CastGradient(gradient)
		}
		for i, mean := range p.meanGradients(in) {
			p.gradients[i] = graph.ConvertDType(mean, p.gradients[i].DType())
		}
	}
}

// update returns the stage that applies the optimizer's update.
func update(opt optimizer.Interface) stage {
	return func(p *pass) {
		takes, gradients := opt.(gomlxtrain.OptimizeWithGradients), p.gradients
		finite := dropsNonFinite(opt) && model.GetParamOr(p.rc.Scope(), optimizer.ParamClipNaN, false)
		if finite {
			gradients = p.clipGradients(gradients)
		}
		p.update(gradients, finite, func(scope *model.Scope, gradients []*graph.Node) {
			takes.UpdateGraphWithGradients(scope, gradients, p.loss.DType())
		})
	}
}

// dropsNonFinite reports whether an optimizer ignores a gradient with a non-finite element if
// [optimizer.ParamClipNaN] is set. GoMLX's optimizers except SGD do.
func dropsNonFinite(opt optimizer.Interface) bool {
	_, sgd := opt.(*optimizer.SGDConfig)
	of := reflect.TypeOf(opt)
	return !sgd && of.Kind() == reflect.Pointer && of.Elem().PkgPath() == reflect.TypeFor[optimizer.SGDConfig]().PkgPath()
}

// finishStep is the stage that runs the per-step updates of layers and restores the states of replicas
// without rows.
func finishStep(p *pass) {
	p.keepFrozen(func() { gomlxtrain.ExecPerStepUpdateGraphFn(p.graph) })
	engine.Internal(p.rc).RestoreStatesWithoutRows()
}
