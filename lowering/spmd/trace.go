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

// Options specifies the devices of a step and the compiler that it is lowered for.
type Options struct {
	// Replicas is the number R of replicas. LogicalDevices is the number P of logical devices per
	// replica. 0 means 1.
	Replicas, LogicalDevices int
	// LogicalAxes are the axes of a replica's logical devices, the slowest first, see
	// logical.NewMesh. LogicalDevices must be the product of their sizes or 0. The default is one
	// axis.
	LogicalAxes []sharding.Axis
	// AllowReplicaProgram allows a step with P = 1 to become a program of R replicas with one
	// partition each, instead of R partitions. Such a program needs no partitioner. See
	// [Module].Replicas.
	AllowReplicaProgram bool
	// Target, Precision, Random and Origins are the options of these names of package lowering.
	Target    lowering.Target
	Precision lowering.Precision
	Random    lowering.Random
	Origins   bool
	// Constant, if not nil, is called for each large constant, see [lowering.Options].Constant. It
	// returns the name of the argument that replaces the constant. It is not called in
	// logical.OnDevice and manual regions.
	Constant func(shape shapes.Shape, elements []byte) (name string, err error)
	// Padded declares that arguments are padded and that [Trace.MaskPadding] will be called.
	Padded bool
}

// Trace is the backend of one graph, which is created by graph.NewGraph(trace, name). It lowers the
// graph's ops, and adds placeholders for annotations and collectives. [Trace.Module] assembles the
// module after the graph is compiled. A Trace is not safe for concurrent use.
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

// NewTrace returns the backend for the graph of one step. If the options are invalid,
// [Trace.Module] returns an error.
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

// NewScratch returns a trace for a separate graph that is only analyzed. It has the options of t,
// except that all constants stay in the text and origins are not recorded.
func (t *Trace) NewScratch() *Trace {
	opts := t.opts
	opts.Origins, opts.Constant = false, nil
	return NewTrace(opts)
}

// replicate replicates an operand of a gather or scatter if the step splits tensors over two or
// more mesh axes. For a split operand, XLA's partitioner searches for device groups that do not
// exist and aborts the process.
func (t *Trace) replicate(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
	if t.InRegion() || !t.usesPartitioner() {
		return x, nil // on one device, or in a manual region
	}
	if t.opts.Replicas == 1 && len(region.ManualAxes(t)) == 0 {
		return x, nil // no second axis
	}
	return f.AddPlaceholder(x, x.Shape(), replicatePlaceholder{})
}

// replaceConstant implements [lowering.Options].Constant.
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

// stepFunction returns the entry function of the trace, which becomes the step function of the
// module.
func (t *Trace) stepFunction() *lowering.Function { return t.builder.Main().(*lowering.Function) }

// LogicalDevices returns the number of logical devices of a replica.
func (t *Trace) LogicalDevices() int { return t.opts.LogicalDevices }

// LogicalMesh returns the logical axes of a replica.
func (t *Trace) LogicalMesh() sharding.Mesh { return t.mesh }

// opEmitter adds the statements of an op with the operand x to the function f, and returns the
// result of the op.
type opEmitter func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error)

// emit adds an op of this package to the graph of x. GoMLX has no custom ops. emit therefore adds
// an identity op, for which GoMLX immediately calls the backend, which calls emitter. gradient
// converts the adjoint of the new node to the adjoint of x. If gradient is nil, no gradient flows.
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

// emitPending is called for each identity op of the graph. If emit is adding the op, emitPending
// calls the emitter that was passed to emit. Otherwise it returns x.
func (t *Trace) emitPending(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
	op := t.pending
	t.pending = nil
	if op == nil {
		return x, nil
	}
	return op(f, x)
}

// Annotate implements [logical.Target]. It adds a placeholder for a sharding constraint, because
// the mesh axes are known only after the complete step is traced. An assigned tensor is replicated
// if it is sharded, or if it is assigned in a closure or another function. See [placement] for
// other assigned tensors.
func (t *Trace) Annotate(x *graph.Node, a logical.Annotation, adjoint bool,
	gradient func(v *graph.Node) *graph.Node) *graph.Node {
	if err := t.checkAnnotation(a, x.Shape().Dimensions); err != nil {
		panic(err)
	}
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		t.annotations = append(t.annotations, a)
		return f.AddPlaceholder(x, x.Shape(), annotationPlaceholder{a, adjoint, f == t.stepFunction()})
	}, gradient)
}

// regionRange is a range of statements of the step that run on one logical device.
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
	t.regions = append(t.regions, regionRange{device: device, begin: len(t.stepFunction().IR().Body), end: -1})
	return nil
}

// EndRegion implements [logical.Target].
func (t *Trace) EndRegion() {
	t.inRegion = false
	t.regions[len(t.regions)-1].end = len(t.stepFunction().IR().Body)
}

// InRegion implements [logical.Target].
func (t *Trace) InRegion() bool {
	return t.inRegion || slices.ContainsFunc(t.OpenPasses(), func(p *region.Pass) bool {
		_,
			on := p.Kind.(region.On)
		return on
	})
}
