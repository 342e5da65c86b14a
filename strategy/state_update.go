package strategy

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// An optimizer makes its state in the shape of the variables that it is given. So a step whose
// replicas share out the state gives it another store, a shadow: the variables have the paths of
// the real ones, the shapes of a replica's parts, and as values these parts. What the optimizer
// makes there becomes variables of the real store, which have the whole shapes and lie on the
// devices in parts. GoMLX finds the nodes of a variable by its path, whichever store has it.

// trainedVariables are the variables that the step's gradients are for, in their order.
func (rc *ReplicaContext) trainedVariables() (all []*model.Variable) {
	for v := range rc.scope.IterVariables() {
		if rc.trains(v) {
			all = append(all, v)
		}
	}
	return all
}

// stateOver says how what belongs to a trained variable is cut over the replicas: its gradient and
// the optimizer's state.
func (rc *ReplicaContext) stateOver(v *model.Variable) module.Over {
	if !rc.strategy.sharding() {
		return module.Over{}
	}
	over, ok := rc.overs[v]
	if !ok {
		over = rc.newStateOver(v)
		rc.overs[v] = over
	}
	return over
}

func (rc *ReplicaContext) newStateOver(v *model.Variable) module.Over {
	s := rc.strategy
	if c := rc.standingIn(v.Path()); c != nil {
		return s.overFor(c.variable.Shape(), false, c.variable.annotation)
	}
	vs := s.Variables(rc.scope.Store())
	if over := vs.overOf(v); over.Is() {
		return over
	}
	a, _ := vs.ruled(v)
	return s.overFor(v.Shape(), vs.isStack(v.Path()), a)
}

// stateSplit says how a trained variable, and what belongs to it, is split over the logical
// devices.
func (rc *ReplicaContext) stateSplit(v *model.Variable) logical.Annotation {
	if c := rc.standingIn(v.Path()); c != nil {
		return c.variable.annotation.WithinReplica()
	}
	a, _ := rc.strategy.Variables(rc.scope.Store()).ruled(v)
	return a.WithinReplica()
}

// meanGradients averages the gradients over the replicas. Of variables whose state is cut, a
// replica gets the part of the mean that it updates.
func (rc *ReplicaContext) meanGradients(gradients []*graph.Node) []*graph.Node {
	means, trained := make([]*graph.Node, len(gradients)), rc.trainedVariables()
	for i, gradient := range gradients {
		over := rc.stateOver(trained[i])
		switch {
		case !over.Is():
			means[i] = rc.AllReduce(Mean, gradient)
		case rc.slices[trained[i].Path()] != nil: // the sum is there
			means[i] = rc.share(gradient)
		case rc.strategy.opts.State == ShardOptimizer:
			means[i] = module.OwnPart(rc.AllReduce(Mean, gradient), over)
		default:
			if err := rc.strategy.reducible(gradient.DType()); err != nil {
				panic(err)
			}
			means[i] = module.ScatterPart(rc.share(gradient), over, rc.stateSplit(trained[i]))
		}
	}
	return means
}

// inParts reports whether the replicas have parts of some gradients.
func (rc *ReplicaContext) inParts() bool {
	return rc.strategy.sharding() && slices.ContainsFunc(rc.trainedVariables(), func(v *model.Variable) bool { return rc.stateOver(v).Is() })
}

// shadow is an update of variables through another store.
type shadow struct {
	rc     *ReplicaContext
	vars   *Variables
	store  *model.Store
	shadow *model.Store
	parts  []shadowPart
}

// shadowPart is a trained variable of which the optimizer gets a replica's part.
type shadowPart struct {
	variable, shadow *model.Variable
	whole, part      *graph.Node
	over             module.Over
}

// updateParts lets an optimizer update the variables, with the gradients of meanGradients.
func (rc *ReplicaContext) updateParts(gradients []*graph.Node, update func(scope *model.Scope, gradients []*graph.Node)) {
	if !rc.inParts() {
		rc.withoutFrozen(rc.scope.Store(), func() { update(rc.scope, gradients) })
		return
	}
	s := &shadow{rc: rc, store: rc.scope.Store(), shadow: model.NewStore()}
	s.vars = rc.strategy.Variables(s.store)
	for path, value := range s.store.IterParams() {
		s.shadow.SetParam(path, value)
	}
	tainted := map[*graph.Node]bool{}
	for v := range s.store.IterVariables() {
		if part := s.add(v); part != nil {
			tainted[part] = true
		}
	}
	for i, v := range rc.trainedVariables() {
		if rc.stateOver(v).Is() {
			tainted[gradients[i]] = true
		}
	}
	first := len(rc.graph.Nodes())
	model.SetStore(rc.graph, s.shadow)
	defer model.SetStore(rc.graph, s.store)
	rc.withoutFrozen(s.shadow, func() { update(s.shadow.RootScope(), gradients) })
	s.takeState(tainted)
	s.elementwise(rc.graph.Nodes()[first:], tainted)
	s.placed(tainted)
	for _, p := range s.parts {
		now := p.shadow.NodeValue(rc.graph)
		if now == p.part {
			p.variable.SetNodeValue(p.whole)
			continue
		}
		whole := module.Whole(now, p.over, rc.stateSplit(p.variable))
		rc.wholes[whole] = now
		p.variable.SetNodeValue(whole)
	}
}

// add gives the shadow a variable of the store, and returns the replica's part of it if it is
// updated in parts.
func (s *shadow) add(v *model.Variable) *graph.Node {
	g := s.rc.graph
	if !v.Trainable && s.vars.overOf(v).Is() {
		return nil // state, which the optimizer makes of the shape that it wants
	}
	shape, over := v.Shape(), module.Over{}
	if s.rc.trains(v) {
		over = s.rc.stateOver(v)
	}
	if !over.Is() {
		held := s.shadow.VariableWithShape(v.Path(), shape, initial.Of(v)).SetTrainable(v.Trainable)
		if value, err := v.Value(); v.HasValue() && err == nil {
			_ = held.SetValuePreservingOld(value)
		}
		return nil
	}
	part := shapes.Make(shape.DType, over.Parts(shape.Dimensions, s.rc.strategy.replicas)...)
	p := shadowPart{variable: v, shadow: s.shadow.VariableWithShape(v.Path(), part, initializer.Zero).SetTrainable(true), whole: v.NodeValue(g), over: over}
	p.part = s.rc.partOf(v, p.whole, over)
	p.shadow.SetNodeValue(p.part)
	s.parts = append(s.parts, p)
	return p.part
}

// partOf is the replica's part of a variable's value in the step.
func (rc *ReplicaContext) partOf(v *model.Variable, whole *graph.Node, over module.Over) *graph.Node {
	if part := rc.wholes[whole]; part != nil {
		return part
	}
	if whole.Type() == graph.NodeTypeParameter && rc.standingIn(v.Path()) == nil && rc.strategy.Variables(rc.scope.Store()).overOf(v).Is() {
		return module.PartOf(whole, over)
	}
	return module.OwnPart(whole, over)
}

// takeState makes variables of the store of the state that the optimizer made in the shadow.
func (s *shadow) takeState(tainted map[*graph.Node]bool) {
	g := s.rc.graph
	for held := range s.shadow.IterVariables() {
		path, shape := held.Path(), held.Shape()
		if slices.ContainsFunc(s.parts, func(p shadowPart) bool { return p.shadow == held }) {
			continue
		}
		of := s.partWithState(held)
		real := s.store.GetVariable(path)
		switch {
		case of != nil:
			whole := shapes.Make(shape.DType, of.over.Wholes(shape.Dimensions)...)
			if real == nil {
				real = s.store.VariableWithShape(path, whole, s.first(held))
				real.SetTrainable(held.Trainable)
			}
			if over := s.vars.overOf(real); over != of.over || !real.Shape().Equal(whole) {
				panic(fault.New(ValueError, fmt.Sprintf("variable %q", path), "trace the training step before functions that read it, or give it the rule of that variable",
					"state of %q of shape %s, %s, where %s, %s, is expected", of.variable.Path(), real.Shape(), over, whole, of.over))
			}
			if held.InUseByGraph(g) {
				if p := g.GetParameterByName(path); p != nil {
					tainted[p] = true
					s.rc.rawParts = append(s.rc.rawParts, p)
				}
			}
		case real == nil:
			if held.HasValue() {
				value, err := held.Value()
				if err != nil {
					panic(err)
				}
				s.store.VariableWithValue(path, value).SetTrainable(held.Trainable)
			} else {
				s.store.VariableWithShape(path, shape, initial.Of(held)).SetTrainable(held.Trainable)
			}
		}
	}
}

// partWithState returns the variable whose state, of the shape of a replica's part, a variable of
// the shadow is.
func (s *shadow) partWithState(held *model.Variable) (of *shadowPart) {
	if held.Trainable || s.store.GetVariable(held.Path()) != nil && !s.vars.overOf(s.store.GetVariable(held.Path())).Is() {
		return nil
	}
	for i := range s.parts {
		p := &s.parts[i]
		if path := p.variable.Path(); strings.Contains(held.Path()[1:], path) && (of == nil || len(path) > len(of.variable.Path())) {
			of = p
		}
	}
	if of == nil || !slices.Equal(held.Shape().Dimensions, of.shadow.Shape().Dimensions) {
		return nil
	}
	return of
}

// first is the initializer of the whole of a state variable.
func (s *shadow) first(held *model.Variable) model.VariableInitializer {
	if !held.HasValue() {
		return initial.Of(held)
	}
	value, err := held.Value()
	if err != nil {
		panic(err)
	}
	number, same := uniform(value)
	if !same {
		panic(fault.New(ValueError, fmt.Sprintf("variable %q", held.Path()), "make it with VariableWithShape and an initializer, or set Options.State to ShardNothing",
			"the optimizer gives state that the replicas share out a first value whose elements differ"))
	}
	return func(g *graph.Graph, shape shapes.Shape) *graph.Node {
		return graph.BroadcastToDims(graph.Const(g, number), shape.Dimensions...)
	}
}

// uniform returns the number that all elements of a tensor are, if there is one.
func uniform(t *tensors.Tensor) (number any, same bool) {
	t.MustConstFlatData(func(flat any) { number = reflect.ValueOf(flat).Index(0).Interface() })
	element := t.DType().Size()
	err := t.ConstBytes(func(data []byte) {
		same = true
		for at := element; at < len(data) && same; at += element {
			same = bytes.Equal(data[:element], data[at:at+element])
		}
	})
	return number, same && err == nil
}

// combining are the ops that combine elements of a tensor, or move them.
var combining = []graph.NodeType{
	graph.NodeTypeReduceSum, graph.NodeTypeReduceMax, graph.NodeTypeReduceMin, graph.NodeTypeReduceProduct,
	graph.NodeTypeReduceLogicalOr, graph.NodeTypeReduceLogicalXor, graph.NodeTypeReduceWindow,
	graph.NodeTypeReduceBitwiseAnd, graph.NodeTypeReduceBitwiseOr, graph.NodeTypeReduceBitwiseXor,
	graph.NodeTypeDotGeneral, graph.NodeTypeConvGeneral, graph.NodeTypeCumSum, graph.NodeTypeFFT, graph.NodeTypeArgMinMax,
	graph.NodeTypeGather, graph.NodeTypeScatterSum, graph.NodeTypeScatterMax, graph.NodeTypeScatterMin,
	graph.NodeTypeSlice, graph.NodeTypeDynamicSlice, graph.NodeTypeConcatenate, graph.NodeTypeReverse, graph.NodeTypePad,
}

// elementwise refuses an optimizer that combines elements of a variable: a replica has a part of
// them only. GoMLX's own look whether a whole gradient is finite, which clipGradients has settled.
func (s *shadow) elementwise(nodes []*graph.Node, tainted map[*graph.Node]bool) {
	for _, node := range nodes {
		if !slices.ContainsFunc(node.Inputs(), func(in *graph.Node) bool { return tainted[in] }) {
			continue
		}
		tainted[node] = true
		if slices.Contains(combining, node.Type()) {
			panic(fault.New(ValueError, "the optimizer's update", "use an optimizer that treats each element apart, or set Options.State to ShardNothing",
				"it combines the elements of a gradient or of a variable (%s), of which each replica has a part", node.Type()))
		}
	}
}

// placed refuses state that is made of parts and that nothing says the place of.
func (s *shadow) placed(tainted map[*graph.Node]bool) {
	for held := range s.shadow.IterVariables() {
		part := slices.ContainsFunc(s.parts, func(p shadowPart) bool { return p.shadow == held })
		if part || s.partWithState(held) != nil || !held.ChangedInGraph(s.rc.graph) || !tainted[held.NodeValue(s.rc.graph)] {
			continue
		}
		panic(fault.New(ValueError, fmt.Sprintf("variable %q", held.Path()), "keep the state of a variable below the variable's own path, in its shape, or set Options.State to ShardNothing",
			"the optimizer writes what it makes of parts to it, and it is the state of no variable"))
	}
}

// clipGradients replaces gradients that are not finite by zeros, on all replicas alike.
func (rc *ReplicaContext) clipGradients(gradients []*graph.Node) []*graph.Node {
	if !rc.inParts() {
		return gradients
	}
	flags := make([]*graph.Node, len(gradients))
	for i, gradient := range gradients {
		if flags[i] = graph.IsFinite(gradient); !flags[i].IsScalar() {
			flags[i] = graph.LogicalAll(flags[i])
		}
		flags[i] = graph.ConvertDType(flags[i], dtypes.Int32)
	}
	all := module.AllReduce(graph.Stack(flags, 0), module.Min)
	clipped := make([]*graph.Node, len(gradients))
	for i, gradient := range gradients {
		finite := graph.GreaterThan(graph.Reshape(graph.Slice(all, graph.AxisElem(i))), rc.constant(dtypes.Int32, 0))
		clipped[i] = graph.Where(finite, gradient, graph.ZerosLike(gradient))
	}
	return clipped
}

// stored is what a step gives for a variable of the store: the replica's part of one that is in
// parts.
func (rc *ReplicaContext) stored(v *model.Variable, value *graph.Node) *graph.Node {
	over := rc.strategy.Variables(rc.scope.Store()).overOf(v)
	old := rc.graph.GetParameterByName(v.Path())
	if !over.Is() {
		return rc.kept(value, old)
	}
	if !value.Shape().Equal(v.Shape()) { // a part already
		return rc.kept(value, old)
	}
	part := rc.partOf(v, value, over)
	if !old.Shape().Equal(v.Shape()) {
		return rc.kept(part, old)
	}
	return rc.kept(part, module.PartOf(old, over))
}
