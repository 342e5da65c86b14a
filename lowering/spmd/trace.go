package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/internal/rematerialization"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options are the numbers of replicas and logical devices of a step, and the compiler to lower it
// for.
type Options struct {
	// Replicas is R. LogicalDevices is P, the number of logical devices per replica. Zero means 1.
	Replicas, LogicalDevices int
	// LogicalAxes are the axes of a replica's logical devices, the slowest first, see logical.NewMesh.
	// LogicalDevices must be the product of their sizes or zero. Without LogicalAxes the replica
	// has one axis.
	LogicalAxes []sharding.Axis
	// AllowReplicaProgram allows a step without logical devices (P = 1) to become a program of R
	// replicas of one partition each, which needs no partitioner, instead of R partitions. See
	// [Module].Replicas.
	AllowReplicaProgram bool
	// Target, Precision, Random and Origins are the options of the same names of package lowering.
	Target    lowering.Target
	Precision lowering.Precision
	Random    lowering.Random
	Origins   bool
	// Constant, if it is not nil, is called for each large constant: see [lowering.Options].Constant. It
	// returns the name of the argument that replaces the constant. It is not called for constants in
	// logical.OnDevice and manual regions, which stay in the text.
	Constant func(shape shapes.Shape, elements []byte) (name string, err error)
	// Padded declares that arguments are padded and that [Trace.MaskPadding] will be called.
	Padded bool
}

// Trace is the backend of one graph: graph.NewGraph(trace, name). It lowers the graph's ops to
// statements, adds annotations and collectives as marks, and assembles the module after the graph
// is compiled. It is not safe for concurrent use and serves one graph.
type Trace struct {
	*lowering.Backend
	opts       Options
	mesh       sharding.Mesh // the logical axes
	axes       sharding.Mesh // the replica axis and the logical axes
	optionsErr error         // the error of the options, returned by Module
	builder    *lowering.Builder

	pending         opEmitter // see emit
	gradients       map[*graph.Node]func(v *graph.Node) *graph.Node
	emitters        map[*graph.Node]opEmitter // by nodes of emit; nil for nodes that cannot be repeated
	cloners         map[*graph.Node]func(copied func(input *graph.Node) *graph.Node) *graph.Node
	annotations     []logical.Annotation
	regions         []regionRange
	inRegion        bool                      // whether the last region is open
	passes          []tracedPass              // passes through regions, in the order in which they began
	openPasses      []int                     // the open passes, by index
	parameterChecks []func(name string) error // see InterceptParameters
}

var (
	_ compute.Backend = (*Trace)(nil)
	_ logical.Target  = (*Trace)(nil)
)

// NewTrace returns the backend for the graph of one step. Invalid LogicalAxes are an error of
// [Trace.Module].
func NewTrace(opts Options) *Trace {
	opts.Replicas = max(opts.Replicas, 1)
	t := &Trace{gradients: map[*graph.Node]func(v *graph.Node) *graph.Node{}, emitters: map[*graph.Node]opEmitter{},
		cloners: map[*graph.Node]func(copied func(input *graph.Node) *graph.Node) *graph.Node{}}
	if t.mesh, t.optionsErr = logical.NewMesh(max(opts.LogicalDevices, 0), opts.LogicalAxes...); t.optionsErr != nil {
		t.mesh, _ = logical.NewMesh(max(opts.LogicalDevices, 1))
	}
	t.axes, _ = sharding.NewMesh(append([]sharding.Axis{{Name: ReplicaAxis, Size: opts.Replicas}}, t.mesh.Axes()...)...)
	opts.LogicalDevices = t.mesh.Size()
	t.opts = opts
	lowered := lowering.Options{
		Target: opts.Target, Precision: opts.Precision, Random: opts.Random, Name: "tpustrategy",
		Identity: t.emitPending, Parameter: t.checkParameter,
		Partitioned: opts.LogicalDevices > 1, Unfused: opts.Padded, Origins: opts.Origins,
	}
	if opts.Constant != nil {
		lowered.Constant = t.replaceConstant
	}
	if t.optionsErr == nil {
		t.optionsErr = lowered.Check()
	}
	if opts.LogicalDevices >= 4 { // two axes need at least four devices
		lowered.Replicate = t.replicate
	}
	t.Backend = lowering.New(lowered)
	return t
}

// NewScratch returns a new trace with the options of t, except that all constants stay in the text.
// Ops traced on it do not become part of t.
func (t *Trace) NewScratch() *Trace {
	opts := t.opts
	opts.Origins, opts.Constant = false, nil
	return NewTrace(opts)
}

// replicate replicates an operand of a gather or a scatter if the step splits tensors over two or
// more logical axes: for a split operand, XLA's partitioner looks for groups of devices that do not
// exist, and aborts the process.
func (t *Trace) replicate(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
	if t.InRegion() || !t.usesPartitioner() {
		return x, nil // on one device, or in a manual region
	}
	if t.opts.Replicas == 1 && len(region.ManualAxes(t)) == 0 {
		return x, nil // no second axis
	}
	return f.Mark(x, x.Shape(), replicateMark{})
}

// replaceConstant implements [lowering.Options.Constant].
func (t *Trace) replaceConstant(shape shapes.Shape, elements []byte) (c lowering.Constant, err error) {
	if t.InRegion() || len(region.ManualAxes(t)) > 0 {
		return c, nil
	}
	c.Name, err = t.opts.Constant(shape, elements)
	return c, err
}

// Builder starts the only computation of the trace.
func (t *Trace) Builder(name string) compute.Builder {
	t.builder = t.Backend.Builder(name).(*lowering.Builder)
	return t.builder
}

// main returns the step function that is being traced.
func (t *Trace) main() *lowering.Function { return t.builder.Main().(*lowering.Function) }

// LogicalDevices returns the number of logical devices of a replica, P.
func (t *Trace) LogicalDevices() int { return t.opts.LogicalDevices }

// LogicalMesh returns the logical axes of a replica.
func (t *Trace) LogicalMesh() sharding.Mesh { return t.mesh }

// opEmitter adds the statement of an op with operand x to f and returns its result.
type opEmitter func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error)

// emit adds an op of this package to the graph of x. GoMLX has no custom ops: the op is an identity
// op for GoMLX, which immediately calls the backend for it, and the backend calls op instead.
// gradient returns the adjoint of x for the adjoint of the node. If gradient is nil, no gradient
// flows.
func (t *Trace) emit(x *graph.Node, emitter opEmitter, gradient func(v *graph.Node) *graph.Node) *graph.Node {
	t.pending = emitter
	defer func() { t.pending = nil }()
	var y *graph.Node
	if gradient == nil {
		y = graph.StopGradient(x)
	} else {
		y = graph.IdentityWithCustomGradient(x, func(y, v *graph.Node) *graph.Node {
			reportGradient(y, false)
			return gradient(v)
		})
	}
	t.gradients[y], t.emitters[y] = gradient, emitter
	return rematerialization.CheckpointLike(x, y)
}

// CloneNode implements [region.Target].
func (t *Trace) CloneNode(node *graph.Node, cloneInput func(input *graph.Node) *graph.Node) (*graph.Node, bool) {
	if again := t.cloners[node]; again != nil {
		return again(cloneInput), true
	}
	inputs := make([]*graph.Node, len(node.Inputs()))
	for i, x := range node.Inputs() {
		inputs[i] = cloneInput(x)
	}
	op, ok := t.emitters[node]
	switch {
	case !ok:
		return node.CloneWithInputs(inputs...), true
	case op == nil:
		return nil, false
	}
	return t.emit(inputs[0], op, t.gradients[node]), true
}

// emitPending is called for each identity op of the graph.
func (t *Trace) emitPending(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
	op := t.pending
	t.pending = nil
	if op == nil {
		return x, nil
	}
	return op(f, x)
}

// Annotate implements [logical.Target]. It adds the mark of a constraint, whose axes are known
// after all splits are known. A tensor that is assigned in a closure or a function, or that is
// sharded over devices, is replicated on all of them. See [placement] for other assigned tensors.
func (t *Trace) Annotate(x *graph.Node, a logical.Annotation, adjoint bool,
	gradient func(v *graph.Node) *graph.Node) *graph.Node {
	if err := t.checkAnnotation(a, x.Shape().Dimensions); err != nil {
		panic(err)
	}
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		t.annotations = append(t.annotations, a)
		return f.Mark(x, x.Shape(), annotationMark{annotation: a, isAdjoint: adjoint, inMain: f == t.main()})
	}, gradient)
}

// regionRange is a range of the step's statements that run on one logical device.
type regionRange struct{ device, begin, end int }

// BeginRegion implements [logical.Target].
func (t *Trace) BeginRegion(device int) error {
	if t.inRegion {
		return regionError(t.opts.LogicalDevices, "inside another region", "close the first region before the second")
	}
	if len(t.openPasses) > 0 {
		return regionError(t.opts.LogicalDevices, fmt.Sprintf("inside a region (%s) with separate passes",
			t.passes[t.openPasses[0]].Kind), "trace it as a separate pass")
	}
	t.inRegion = true
	t.regions = append(t.regions, regionRange{device: device, begin: len(t.main().IR().Body), end: -1})
	return nil
}

// EndRegion implements [logical.Target].
func (t *Trace) EndRegion() {
	t.inRegion = false
	t.regions[len(t.regions)-1].end = len(t.main().IR().Body)
}

// InRegion implements [logical.Target].
func (t *Trace) InRegion() bool {
	return t.inRegion || slices.ContainsFunc(t.OpenPasses(), func(p *region.Pass) bool {
		_,
			on := p.Kind.(region.On)
		return on
	})
}
