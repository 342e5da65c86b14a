package region

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// Pass is the forward pass or a backward pass of a region.
type Pass struct {
	Kind Kind
	// Forward is the forward pass of a backward pass, and nil for a forward pass.
	Forward *Pass
	// In and Out are the mappings of the arguments and of the results.
	In, Out []Mapping
}

// Target is implemented by graph backends that support regions.
type Target interface {
	// BeginPass and EndPass enclose the ops of a pass. Passes can be nested. BeginPass returns an
	// error if a region is not allowed here.
	BeginPass(p *Pass) error
	EndPass(p *Pass)
	// OpenPasses returns the open passes, the outermost first.
	OpenPasses() []*Pass
	// EmitOp adds an [Op] to the graph of x and returns its node. gradient returns the adjoint of x
	// for the adjoint of the node. If gradient is nil, no gradient flows.
	EmitOp(x *graph.Node, op Op, gradient func(v *graph.Node) *graph.Node) *graph.Node
	// CloneNode adds the op of a node again with the inputs cloneInput(input). It returns false for
	// an [Op] other than [CheckpointName].
	CloneNode(node *graph.Node, cloneInput func(input *graph.Node) *graph.Node) (*graph.Node, bool)
	// LogicalMesh returns the named axes of a replica's logical devices, see logical.NewMesh.
	LogicalMesh() sharding.Mesh
	// InterceptParameters calls check for each parameter that is added to the graph, until stop is
	// called. If check returns an error, the parameter is rejected. A region whose arguments are
	// found during the trace, such as a loop with stacked variables, rejects parameters that should
	// be arguments, and is traced again with these arguments. Calls can be nested; the last check
	// is called first.
	InterceptParameters(check func(name string) error) (stop func())
}

// Op is an op at the boundary of a region, or a collective within a region.
type Op interface{ op() }

// Enter passes an argument into a region. Its operand is the value outside the region, and its
// result is the argument inside the region, number Index of Pass.
type Enter struct {
	Pass  *Pass
	Index int
	Shape shapes.Shape
}

// Leave passes a result out of a region, after the pass. Its operand is the result inside the
// region, number Index of Pass, and its result is the value outside the region.
type Leave struct {
	Pass  *Pass
	Index int
	Shape shapes.Shape
}

// Save stores its operand in a [Slot] and returns the operand.
type Save struct{ Slot *Slot }

// Load returns the value that [Save] stored in a [Slot]. It ignores its operand.
type Load struct{ Slot *Slot }

// ZerosLike returns zeros with the shape of the value that [Save] stored in a [Slot]. It ignores
// its operand.
type ZerosLike struct{ Slot *Slot }

// ScalarZero returns the float32 number 0. It ignores its operand.
type ScalarZero struct{}

// CheckpointName returns the operand and names it for a [RematPolicy].
type CheckpointName struct{ Name string }

func (Enter) op()          {}
func (Leave) op()          {}
func (Save) op()           {}
func (Load) op()           {}
func (ZerosLike) op()      {}
func (ScalarZero) op()     {}
func (CheckpointName) op() {}

// Slot passes a value of the lowered program between two nodes that no edge of the graph connects.
// Value belongs to the target.
type Slot struct{ Value any }
