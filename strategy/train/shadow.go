package train

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// An optimizer makes its state in the shape of the variables that it is given. So a step whose
// replicas share out the state gives it another store, a shadow: the variables have the paths of
// the real ones, the shapes of a replica's parts, and as values these parts. What the optimizer
// makes there becomes variables of the real store, which have the whole shapes and lie on the
// devices in parts. GoMLX finds the nodes of a variable by its path, whichever store has it.

// shadow is an update of variables through another store.
type shadow struct {
	*trainer
	store  *model.Store
	shadow *model.Store
	parts  []shadowPart
}

// shadowPart is a trained variable of which the optimizer gets a replica's part.
type shadowPart struct {
	variable, shadow *model.Variable
	whole, part      *graph.Node
	over             spmd.ReplicaShard
}

// update lets an optimizer update the variables, with the gradients of meanGradients.
func (t *trainer) update(gradients []*graph.Node, update func(scope *model.Scope, gradients []*graph.Node)) {
	if !t.inParts() {
		t.withoutFrozen(t.store(), func() { update(t.rc.Scope(), gradients) })
		return
	}
	s := &shadow{trainer: t, store: t.store(), shadow: model.NewStore()}
	for path, value := range s.store.IterParams() {
		s.shadow.SetParam(path, value)
	}
	tainted := map[*graph.Node]bool{}
	for v := range s.store.IterVariables() {
		if part := s.add(v); part != nil {
			tainted[part] = true
		}
	}
	for i, v := range t.variables() {
		if t.over(v).Is() {
			tainted[gradients[i]] = true
		}
	}
	first := len(t.graph.Nodes())
	model.SetStore(t.graph, s.shadow)
	defer model.SetStore(t.graph, s.store)
	t.withoutFrozen(s.shadow, func() { update(s.shadow.RootScope(), gradients) })
	s.takeState(tainted)
	s.elementwise(t.graph.Nodes()[first:], tainted)
	s.placed(tainted)
	for _, p := range s.parts {
		now := p.shadow.NodeValue(t.graph)
		if now == p.part {
			p.variable.SetNodeValue(p.whole)
			continue
		}
		whole := spmd.Whole(now, p.over, t.place(p.variable).split)
		t.common.Parts[whole] = now
		p.variable.SetNodeValue(whole)
	}
}

// add gives the shadow a variable of the store, and returns the replica's part of it if it is
// updated in parts.
func (s *shadow) add(v *model.Variable) *graph.Node {
	if !v.Trainable && s.inner.Stored(v).Is() {
		return nil // state, which the optimizer makes of the shape that it wants
	}
	shape, over := v.Shape(), spmd.ReplicaShard{}
	if v.Trainable && v.InUseByGraph(s.graph) && !s.freezes(v) {
		over = s.over(v)
	}
	if !over.Is() {
		held := s.shadow.VariableWithShape(v.Path(), shape, initial.Of(v)).SetTrainable(v.Trainable)
		if value, err := v.Value(); v.HasValue() && err == nil {
			_ = held.SetValuePreservingOld(value)
		}
		return nil
	}
	part := shapes.Make(shape.DType, over.Parts(shape.Dimensions, s.rc.NumReplicasInSync())...)
	p := shadowPart{variable: v, shadow: s.shadow.VariableWithShape(v.Path(), part, initializer.Zero).SetTrainable(true), whole: v.NodeValue(s.graph), over: over}
	p.part = s.inner.PartOf(v, p.whole, over)
	p.shadow.SetNodeValue(p.part)
	s.parts = append(s.parts, p)
	return p.part
}

// takeState makes variables of the store of the state that the optimizer made in the shadow.
func (s *shadow) takeState(tainted map[*graph.Node]bool) {
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
			if over := s.inner.Stored(real); over != of.over || !real.Shape().Equal(whole) {
				panic(fault.New(errkind.ValueError, fmt.Sprintf("variable %q", path), "trace the training step before functions that read it, or give it the rule of that variable",
					"state of %q of shape %s, %s, where %s, %s, is expected", of.variable.Path(), real.Shape(), over, whole, of.over))
			}
			if held.InUseByGraph(s.graph) {
				if p := s.graph.GetParameterByName(path); p != nil {
					tainted[p] = true
					s.common.PartParameters = append(s.common.PartParameters, p)
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
func (s *shadow) partWithState(held *model.Variable) *shadowPart {
	if held.Trainable || s.store.GetVariable(held.Path()) != nil && !s.inner.Stored(s.store.GetVariable(held.Path())).Is() {
		return nil
	}
	part := func(path string) int {
		return slices.IndexFunc(s.parts, func(p shadowPart) bool {
			return p.variable.Path() == path && slices.Equal(held.Shape().Dimensions, p.shadow.Shape().Dimensions)
		})
	}
	if i := part(logical.StateOf(held.Path(), func(path string) bool { return part(path) >= 0 })); i >= 0 {
		return &s.parts[i]
	}
	return nil
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
		panic(fault.New(errkind.ValueError, fmt.Sprintf("variable %q", held.Path()), "make it with VariableWithShape and an initializer, or keep the state whole by a rule with logical.ShardNothing",
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
// them only. That GoMLX looks whether a
// whole gradient is finite, clipGradients has settled.
func (s *shadow) elementwise(nodes []*graph.Node, tainted map[*graph.Node]bool) {
	for _, node := range nodes {
		if !slices.ContainsFunc(node.Inputs(), func(in *graph.Node) bool { return tainted[in] }) {
			continue
		}
		tainted[node] = true
		if slices.Contains(combining, node.Type()) {
			panic(fault.New(errkind.ValueError, "the optimizer's update", "use an optimizer that treats each element apart, or keep the state whole by a rule with logical.ShardNothing",
				"it combines the elements of a gradient or of a variable (%s), of which each replica has a part", node.Type()))
		}
	}
}

// placed refuses state that is made of parts and that nothing says the place of.
func (s *shadow) placed(tainted map[*graph.Node]bool) {
	for held := range s.shadow.IterVariables() {
		part := slices.ContainsFunc(s.parts, func(p shadowPart) bool { return p.shadow == held })
		if part || s.partWithState(held) != nil || !held.ChangedInGraph(s.graph) || !tainted[held.NodeValue(s.graph)] {
			continue
		}
		panic(fault.New(errkind.ValueError, fmt.Sprintf("variable %q", held.Path()), "keep the state of a variable below the variable's own path, in its shape, or keep the state whole by a rule with logical.ShardNothing",
			"the optimizer writes what it makes of parts to it, and it is the state of no variable"))
	}
}
