package region

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// Pass is one pass through a region: the forward pass, or a backward pass of it.
type Pass struct {
	Kind Kind
	// Forward is the forward pass that this is a backward pass of, nil for a forward pass.
	Forward *Pass
	// In and Out are the crossings of the arguments and of the results.
	In, Out []Crossing
}

// Target is the interface of a graph's backend that has regions.
type Target interface {
	// BeginPass and EndPass bracket the ops of a pass. Passes nest. An error says why there can be
	// no region here.
	BeginPass(p *Pass) error
	EndPass(p *Pass)
	// Open returns the passes whose ops are traced now, the outermost first.
	Open() []*Pass
	// EmitBorder adds an op of a border to the graph of x and returns its node. gradient makes the
	// adjoint of x from that of the node; without one no gradient flows.
	EmitBorder(x *graph.Node, op Op, gradient func(v *graph.Node) *graph.Node) *graph.Node
	// Repeat adds the op of a node once more, with copied of each input. It reports false for the op of a
	// border except [Name].
	Repeat(node *graph.Node, copied func(input *graph.Node) *graph.Node) (*graph.Node, bool)
	// LogicalMesh returns the named axes of a replica's logical devices: see logical.Mesh.
	LogicalMesh() sharding.Mesh
	// Ask has ask be asked for each parameter that is added to the graph until done is called. An
	// error refuses the parameter: a region whose arguments are found while it is traced, such as a
	// loop with stacked variables, refuses those that should have been arguments, and is traced again
	// with them. Those who ask nest; the last is asked first.
	Ask(ask func(name string) error) (done func())
}

// Op is an op at the border of a region, or one of several devices together within a region.
type Op interface{ op() }

// Enter returns, inside of a pass, its argument Index, which is the operand outside.
type Enter struct {
	Pass  *Pass
	Index int
	Shape shapes.Shape
}

// Leave returns, outside of a pass, its result Index, which is the operand inside. It stands behind
// the pass.
type Leave struct {
	Pass  *Pass
	Index int
	Shape shapes.Shape
}

// Save keeps the operand in a slot and returns it.
type Save struct{ Slot *Slot }

// Load ignores the operand and returns the value of a slot.
type Load struct{ Slot *Slot }

// Zeros ignores the operand and returns zeros of the shape of a slot's value.
type Zeros struct{ Slot *Slot }

// Zero ignores the operand and returns the float32 number 0.
type Zero struct{}

// Name returns the operand, which [Keep] knows by a name.
type Name struct{ Name string }

func (Enter) op() {}
func (Leave) op() {}
func (Save) op()  {}
func (Load) op()  {}
func (Zeros) op() {}
func (Zero) op()  {}
func (Name) op()  {}

// Slot carries a value of the lowered program from one node to another that no edge of the graph
// connects. Value belongs to the target.
type Slot struct{ Value any }
