package train

import (
	"reflect"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A training step is built in stages, one after the other, each of which adds its part to the graph
// of a replica. The options choose the stages.

// stage adds a part of a training step to its graph. Like all that builds graph, it panics with its
// error.
type stage func(p *pass)

// pass carries the graph of one trace from stage to stage.
type pass struct {
	*trainer
	in []*graph.Node
	// own is the mean loss of the replica's rows. loss is scaled so that the mean over the replicas is
	// the loss of the batch. sum and weight are the sum and the weight of a weighted loss, and divisor
	// is what its sum was divided by; nil for any other loss.
	own, loss            *graph.Node
	sum, weight, divisor *graph.Node
	// gradients are the replica's, and once they were reduced their means over the replicas.
	// trained are the names of the variables that they are for.
	gradients []*graph.Node
	trained   []string
	mean      *graph.Node // see meanLoss
	// norm is that of the gradients, if it is taken before they are judged; before are the trained
	// variables before the update, if its norm is asked for; rate is the learning rate, if a
	// schedule says it.
	norm   *graph.Node
	before []*graph.Node
	rate   *graph.Node
	// recorder adds up the step's metrics, nil without any.
	recorder *recorder
	// what and gradient are those of nonFinite.
	what, gradient *graph.Node
	// scaling is how the loss is scaled, scaled the loss so; nil if it is not. overflow says what
	// became of a step with a dynamic scale, nil without one.
	scaling  *stepScaler
	scaled   *graph.Node
	overflow *overflow
}

// meanLoss is the loss averaged over the replicas.
func (p *pass) meanLoss() *graph.Node {
	if p.mean == nil {
		p.mean = p.rc.AllReduce(strategy.Mean, p.loss)
	}
	return p.mean
}

// build is the step function of some stages. It returns the mean loss.
func build(stages []stage) strategy.StepFunc {
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

// forward builds the loss by the policy.
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
			wrong(scalar, "the loss function returned no node")
		}
		if !l.IsScalar() || !l.DType().IsFloat() {
			wrong(scalar, "the loss is %s", l.Shape())
		}
		if p.weight = p.weightOf(sum); p.weight == nil {
			p.own = regularized(l, nil)
			return
		}
		p.sum = regularized(sum, p.weight) // in its own dtype, not in the policy's
		p.own = graph.Div(p.sum, oneIfZero(p.weight))
	}
}

// regularized adds the regularization terms of the graph's layers to the loss, unless the loss
// function has done so itself. The terms are multiplied by the weight, if there is one.
func regularized(l, weight *graph.Node) *graph.Node {
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
	p.gradients = p.gradientsOf(loss)
	p.trained = p.paths(p.variables())
	if len(p.gradients) == 0 {
		wrong("use a variable of the store in it, or read one of the strategy",
			"the loss uses no trainable variable: none of the store, and reads none of the scope")
	}
}

// reduce averages the gradients over the replicas, in the dtype that the policy says. Where the
// replicas share out state, each has its part of the means from here on.
func reduce(policy precision.Policy) stage {
	return func(p *pass) {
		in := make([]*graph.Node, len(p.gradients))
		for i, gradient := range p.gradients {
			in[i] = policy.ToReduce(gradient)
		}
		for i, mean := range p.meanGradients(in) {
			p.gradients[i] = graph.ConvertDType(mean, p.gradients[i].DType())
		}
	}
}

// update changes the variables as the optimizer does with the gradients.
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

// dropsNonFinite reports whether an optimizer, if [optimizer.ParamClipNaN] is set, ignores a gradient
// with an element that is not finite. GoMLX's optimizers except SGD do.
func dropsNonFinite(opt optimizer.Interface) bool {
	_, sgd := opt.(*optimizer.SGDConfig)
	of := reflect.TypeOf(opt)
	return !sgd && of.Kind() == reflect.Pointer && of.Elem().PkgPath() == reflect.TypeFor[optimizer.SGDConfig]().PkgPath()
}

// settle makes the updates that layers ask for after each step, and leaves states as they were
// where there was nothing to learn from.
func settle(p *pass) {
	p.keepFrozen(func() { gomlxtrain.ExecPerStepUpdateGraphFn(p.graph) })
	p.inner.KeepStates()
}
