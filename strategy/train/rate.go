package train

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// ratePath is the path of the variable from which GoMLX's optimizers read the learning rate.
var ratePath = model.JoinPath("/", optimizer.Scope, optimizer.ParamLearningRate)

// setLearningRate returns a stage that sets the optimizer's learning rate to the schedule's rate
// for the current step. The number of applied steps is the counter that GoMLX's optimizers have in
// the store.
func setLearningRate(opt optimizer.Interface, s schedule.Schedule) stage {
	return func(p *stepBuilder) {
		g, store := p.rc.Graph(), p.rc.Scope().Store()
		if v := store.GetVariable(ratePath); v != nil && v.ChangedInGraph(g) {
			panicInvalid("leave one out: Options.LearningRate, or cosineschedule in the loss function",
				"the loss function sets the learning rate, and so does Options.LearningRate")
		}
		dtype := rateDType(opt, store, p.loss.DType())
		taken := optimizer.GetGlobalStepVar(store).NodeValue(g)
		p.rate = s.Graph(taken)
		store.VariableWithValue(ratePath, shapes.CastAsDType(s.At(0),
			dtype)).SetTrainable(false).SetNodeValue(graph.ConvertDType(p.rate, dtype))
	}
}

// rateDType returns the dtype in which an optimizer reads its learning rate. It builds an update of a
// model with one scalar in a separate graph, because GoMLX has no method that returns this dtype.
// rateDType panics for an optimizer that does not read the rate from the store, or that changes the rate
// with the number of steps itself.
func rateDType(opt optimizer.Interface, of *model.Store, loss dtypes.DType) dtypes.DType {
	backend, err := gobackend.New("")
	if err != nil {
		panic(err)
	}
	defer backend.Finalize()
	store := model.NewStore()
	for path, value := range of.IterParams() {
		store.SetParam(path, value)
	}
	g := graph.NewGraph(backend, "learning_rate")
	defer g.Finalize()
	model.SetStore(g, store)
	scope := store.RootScope()
	x := scope.VariableWithValue("x", float32(1))
	err = exceptions.TryCatch[error](func() {
		opt.(gomlxtrain.OptimizeWithGradients).UpdateGraphWithGradients(scope,
			[]*graph.Node{graph.OnesLike(x.NodeValue(g))}, loss)
	})
	if err != nil {
		panic(&errkind.Fault{Op: "train",
			Reason: fmt.Sprintf(
				"optimizer %T cannot update a model of one number, by which the dtype of its learning rate is found", opt),
			Hint: "leave Options.LearningRate out, or let the optimizer find its variables in the scope that it is given",
			Err:  err, Class: errkind.ValueError})
	}
	rate := g.GetParameterByName(ratePath)
	if rate == nil {
		panicInvalid("use one of the Adam family or SGD, or leave Options.LearningRate out",
			"optimizer %T does not read its learning rate from the store (%s), so that a schedule does not reach it", opt,
			ratePath)
	}
	if step := g.GetParameterByName(model.JoinPath("/", optimizer.GlobalStepVariableName)); step == nil {
		panicInvalid("use one of the Adam family or SGD, or leave Options.LearningRate out",
			"optimizer %T does not count its steps in the store (/%s), which the schedule follows", opt,
			optimizer.GlobalStepVariableName)
	} else if combinesRateWithStep(g, rate, step) {
		panicInvalid("use optimizer.StochasticGradientDescent().WithDecay(false), or leave Options.LearningRate out",
			"optimizer %T divides the learning rate by the root of the steps by itself", opt)
	}
	return rate.DType()
}

// combinesRateWithStep reports whether an operation of the graph combines the learning rate with a value
// that is computed from the number of steps.
func combinesRateWithStep(g *graph.Graph, rate, step *graph.Node) bool {
	ofStep := map[*graph.Node]bool{step: true}
	for _, node := range g.Nodes() {
		in := node.Inputs()
		if slices.Contains(in, rate) && slices.ContainsFunc(in, func(n *graph.Node) bool { return ofStep[n] }) {
			return true
		}
		if slices.ContainsFunc(in, func(n *graph.Node) bool { return ofStep[n] }) {
			ofStep[node] = true
		}
	}
	return false
}
