package train

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// averagesScope is the scope of the moving averages of all steps. It contains a scope for each step.
const averagesScope = "/averages"

func averagePath(step, path string) string { return model.JoinPath(averagesScope, step) + path }

func averageCountPath(step string) string { return model.JoinPath(averagesScope, step, "updates") }

// updateAverages updates the moving averages. They are sharded like the optimizer's state.
func (o *Options) updateAverages(p *stepBuilder) {
	p.updateVariables(p.gradients, false, func(scope *model.Scope, gradients []*graph.Node) {
		g, store := gradients[0].Graph(), scope.Store()
		var trained []*model.Variable
		for v := range store.IterVariables() {
			if v.Trainable && v.InUseByGraph(g) {
				trained = append(trained, v)
			}
		}
		count := store.VariableWithValue(averageCountPath(o.Name), int64(0)).SetTrainable(false)
		updates := count.NodeValue(g)
		rest := constant(g, dtypes.Float64, 1-o.Average)
		if o.AverageWarmUp {
			u := graph.ConvertDType(updates, dtypes.Float64)
			rest = graph.Max(rest, graph.Div(constant(g, dtypes.Float64, 9), graph.AddScalar(u, 10)))
		}
		// The first update copies the variables.
		rest = graph.Where(graph.Equal(updates, intConstant(g, 0)), constant(g, dtypes.Float64, 1), rest)
		count.SetNodeValue(graph.Add(updates, intConstant(g, 1)))
		for _, v := range trained {
			now := v.NodeValue(g)
			if now.DType().IsHalfPrecision() {
				now = graph.ConvertDType(now, dtypes.Float32)
			}
			of := store.VariableWithShape(averagePath(o.Name, v.Path()),
				shapes.Make(now.DType(), v.Shape().Dimensions...), initializer.Zero).SetTrainable(false)
			was := of.NodeValue(g)
			of.SetNodeValue(graph.Add(was, graph.Mul(graph.Sub(now, was), graph.ConvertDType(rest, now.DType()))))
		}
	})
}

// averagePair is a trained variable together with its moving average.
type averagePair struct {
	variable, average *model.Variable
	// of is the trained variable if it belongs to the strategy's scope, and otherwise nil.
	of *strategy.Variable
}

// findAverages returns the moving averages that a step has in the store, and the variable that
// counts the updates of the averages. It panics if the store has no averages of this step.
func findAverages(rc *strategy.ReplicaContext, step string) (all []averagePair, count *model.Variable) {
	store := rc.Scope().Store()
	count = store.GetVariable(averageCountPath(step))
	if count == nil {
		panic(errNoAverages(step))
	}
	for v := range store.IterVariables() {
		if average := store.GetVariable(averagePath(step, v.Path())); v.Trainable && average != nil {
			all = append(all, averagePair{variable: v, average: average})
		}
	}
	for _, v := range rc.Strategy().DistributedVariables() {
		if average := store.GetVariable(averagePath(step, savedstep.ProxyPath(v.Path()))); isTrained(v) && average != nil {
			all = append(all, averagePair{average: average, of: v})
		}
	}
	return all, count
}

func errNoAverages(step string) error {
	return &errkind.Fault{Op: "train: averages", Subject: fmt.Sprintf("of step %q", step), Reason: "the store has none",
		Hint: "set Options.Average of the step of this name, and take a step before", Class: errkind.ValueError}
}

// read returns the variable's current value and its average, which is converted to the variable's
// dtype. Before the first update the average equals the value.
func (a averagePair) read(rc *strategy.ReplicaContext, count *model.Variable) (value, average *graph.Node) {
	g := rc.Graph()
	if a.of != nil {
		value = rc.Read(a.of)
	} else {
		value = a.variable.NodeValue(g)
	}
	none := graph.Equal(count.NodeValue(g), intConstant(g, 0))
	return value, graph.Where(none, value, graph.ConvertDType(a.average.NodeValue(g), value.DType()))
}

// Averaged calls f, which builds a model, with the moving averages of a training step in place of the
// variables. Inside f, layers and [strategy.ReplicaContext.Read] read the averages. The variables
// do not change. f may build layers in the same scopes as the code around it.
//
// Use Averaged in functions that evaluate or generate with the step's store. step is the name of
// the training step ([Options].Name). Under a policy of package precision, call Averaged inside the
// function that is passed to [precision.Policy.Forward]. Averages that were never updated equal the
// variables. Averaged panics with an [*errkind.Fault] of kind ValueError if the store has no
// averages, which is the case before the first run of the step: trace the function after that run.
func Averaged(rc *strategy.ReplicaContext, step string, f func()) {
	all, count := findAverages(rc, step)
	for _, a := range all {
		_, average := a.read(rc, count)
		defer a.swapIn(rc, average)()
	}
	defer engine.Internal(rc).State().NewScopes()() // f may reuse the scopes of the step's layers
	f()
}

// swapIn makes traced code read x instead of the variable's value, until restore is called.
func (a averagePair) swapIn(rc *strategy.ReplicaContext, x *graph.Node) (restore func()) {
	x = region.AllowCapture(rc.Graph().Backend().(region.Target), x)
	if a.of != nil {
		held := engine.Internal(rc).StepVariable(a.of)
		was := held.Value()
		held.SetValue(x)
		return func() { held.SetValue(was) }
	}
	was := a.variable.NodeValue(rc.Graph())
	a.variable.SetNodeValue(x)
	return func() { a.variable.SetNodeValue(was) }
}

// SwapAverages exchanges the variables and their averages ([Options].Average) on the devices. A second
// call exchanges them back. Between the calls, a checkpoint contains the averages under the variables'
// names, and all functions over the store compute with the averages. Do not train between the calls.
//
// SwapAverages costs a small program and, while it runs, the memory of one copy of the variables.
// With several processes, all must call it at the same point. Averages that were never updated are
// not exchanged. For a step without averages the error matches errors.ErrUnsupported.
func (t *Step) SwapAverages(ctx context.Context) error {
	if err := strategy.RefuseTracing(ctx, "SwapAverages", fault.InsteadOfRunning); err != nil {
		return err
	}
	if t.swap == nil || engine.Internal(t.function).SavedStep() != nil &&
		t.Store().GetVariable(averageCountPath(t.name)) == nil {
		return &errkind.Fault{Op: "train: " + t.name, Reason: "it keeps no averages of variables",
			Hint:  "set Options.Average, such as to 0.999",
			Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	_, err := t.swap().Run(ctx)
	return err
}

// newSwapFunction returns the function that [Step.SwapAverages] runs on the devices. Its program is
// compiled at the first call.
func newSwapFunction(s *strategy.TPUStrategy, store *model.Store, step string) func() *strategy.Function {
	swap := func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		all, count := findAverages(rc, step)
		for _, a := range all {
			value, average := a.read(rc, count)
			none := graph.Equal(count.NodeValue(rc.Graph()), intConstant(rc.Graph(), 0))
			was := a.average.NodeValue(rc.Graph())
			a.average.SetNodeValue(graph.Where(none, was, graph.ConvertDType(value, was.DType())))
			if a.of != nil {
				engine.Internal(rc).StepVariable(a.of).SetValue(average)
			} else {
				a.variable.SetNodeValue(average)
			}
		}
		return nil
	}
	return sync.OnceValue(func() *strategy.Function {
		return s.Function(swap, strategy.FunctionOptions{Name: step + "_swap_averages", Store: store})
	})
}
