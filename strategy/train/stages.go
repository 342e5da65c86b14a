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

// stage adds one phase of a training step, such as the backward pass, to the graph of the step. The
// options determine which stages [New] uses. A stage reports errors by a panic.
type stage func(p *stepBuilder)

// stepBuilder is the state that the stages of a training step share during one trace.
type stepBuilder struct {
	*trainer
	in []*graph.Node
	// own is the mean loss of the replica's rows. loss is scaled so that its mean over the replicas is the
	// loss of the batch.
	own, loss *graph.Node
	// sum and weight are the results of a weighted loss function. divisor is the number by which sum was
	// divided. They are nil for any other loss.
	sum, weight, divisor *graph.Node
	// gradients are the gradients of the replica, and after reduceGradients their means over the
	// replicas. trained are the names of the gradients' variables.
	gradients []*graph.Node
	trained   []string
	mean      *graph.Node   // cached result of meanLoss
	norm      *graph.Node   // global norm of the gradients, or nil if it is not computed yet
	before    []*graph.Node // values of the trained variables before the update, for the update norm
	rate      *graph.Node   // learning rate of a schedule, or nil
	recorder  *recorder     // nil for a step without metrics
	// The cached results of findNonFinite.
	firstNonFinite, firstNonFiniteGradient *graph.Node
	// scaled is the loss times the loss scale. scaling and scaled are nil without a loss scale, and
	// overflow is nil without a dynamic loss scale.
	scaling  *stepScaler
	scaled   *graph.Node
	overflow *overflow
}

// meanLoss returns the loss averaged over the replicas.
func (p *stepBuilder) meanLoss() *graph.Node {
	if p.mean == nil {
		p.mean = p.rc.AllReduce(strategy.Mean, p.loss)
	}
	return p.mean
}

// newStepFunc returns a step function that runs the stages in order and returns the mean loss.
func newStepFunc(stages []stage) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		p := &stepBuilder{trainer: newTrainer(rc), in: in}
		defer p.deleteProxies()
		p.begin()
		for _, add := range stages {
			add(p)
		}
		loss := p.meanLoss()
		p.writeProxyValues()
		return []*graph.Node{loss}
	}
}

// buildLoss returns a stage that calls the loss function. The loss is computed in the dtypes of the
// precision policy.
func buildLoss(loss Loss, policy precision.Policy) stage {
	return func(p *stepBuilder) {
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

// addRegularizers adds the regularization terms of the layers to the loss l, unless l already
// contains these terms. If weight is not nil, it multiplies the terms by weight.
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

// buildGradients computes the gradients of the loss.
func buildGradients(p *stepBuilder) {
	loss := p.loss
	if p.scaled != nil {
		loss = p.scaled
	}
	p.gradients = p.computeGradients(loss)
	p.trained = p.userPaths(p.trainedVariables())
	if len(p.gradients) == 0 {
		panicInvalid("use a variable of the store in it, or read one of the strategy",
			"the loss uses no trainable variable: none of the store, and reads none of the scope")
	}
}

// reduceGradients returns a stage that averages the gradients over the replicas, in the dtype of
// the precision policy. For a variable with sharded state each replica only keeps its shard of the
// average.
func reduceGradients(policy precision.Policy) stage {
	return func(p *stepBuilder) {
		in := make([]*graph.Node, len(p.gradients))
		for i, gradient := range p.gradients {
			in[i] = policy.CastGradient(gradient)
		}
		for i, mean := range p.meanGradients(in) {
			p.gradients[i] = graph.ConvertDType(mean, p.gradients[i].DType())
		}
	}
}

func applyOptimizer(opt optimizer.Interface) stage {
	return func(p *stepBuilder) {
		takes, gradients := opt.(gomlxtrain.OptimizeWithGradients), p.gradients
		finite := dropsNonFinite(opt) && model.GetParamOr(p.rc.Scope(), optimizer.ParamClipNaN, false)
		if finite {
			gradients = p.zeroNonFinite(gradients)
		}
		p.updateVariables(gradients, finite, func(scope *model.Scope, gradients []*graph.Node) {
			takes.UpdateGraphWithGradients(scope, gradients, p.loss.DType())
		})
	}
}

// dropsNonFinite reports whether an optimizer ignores a gradient with a non-finite element if
// [optimizer.ParamClipNaN] is set. All optimizers of GoMLX do this, except SGD.
func dropsNonFinite(opt optimizer.Interface) bool {
	_, sgd := opt.(*optimizer.SGDConfig)
	of := reflect.TypeOf(opt)
	return !sgd && of.Kind() == reflect.Pointer && of.Elem().PkgPath() == reflect.TypeFor[optimizer.SGDConfig]().PkgPath()
}

// finishStep runs the per-step updates of layers. On replicas without rows it restores the states
// of layers.
func finishStep(p *stepBuilder) {
	p.keepFrozen(func() { gomlxtrain.ExecPerStepUpdateGraphFn(p.graph) })
	engine.Internal(p.rc).RestoreStatesWithoutRows()
}
