package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// ReplicaAxis is the name of the mesh axis of the replicas, and LogicalAxis that of the logical
// devices of a replica whose logical axes have no names.
const (
	ReplicaAxis = logical.ReplicaName
	LogicalAxis = logical.AxisName
)

// meshName is the mesh's symbol in the text.
const meshName = "mesh"

// Tensor says how an argument or a result of the step crosses the module's border.
type Tensor struct {
	// Name stands in reports and errors.
	Name string
	// PerReplica tensors differ between replicas; others are mirrored.
	PerReplica bool
	// Over says that the tensor is in parts: each replica holds one, and the global tensor is the
	// parts one after another along a dimension. The step's parameter is the part, or the whole
	// tensor, which the module then gathers where the step reads it; a result is a part. A tensor
	// is not both PerReplica and in parts.
	Over ReplicaShard
	// Annotation splits the tensor over the logical devices. An assigned tensor
	// is stored whole on each of them.
	Annotation logical.Annotation
	// PerStep arguments have a value for each of the signature's steps, along a
	// leading dimension; others are the same for all of them.
	PerStep bool
	// Donated arguments give their memory to the result numbered Result, which
	// must have the same shape and placement.
	Donated bool
	Result  int
	// Constant is set for an argument that replaces a constant of the step.
	Constant bool
}

// Signature describes a step function's arguments, in the order of its
// parameters without the replica id, and its results.
type Signature struct {
	Arguments, Results []Tensor
	// Steps, if positive, makes the module run the step that many times, in a
	// loop on the devices: donated arguments carry over from one step to the
	// next, and the other results are those of the last. 0 is the step itself,
	// without a loop.
	Steps int
	// While says that the first result, a scalar of Bool, ends the loop early: Steps is then how
	// often the step runs at most. It runs once, and again as long as the result is true, which has
	// to be the same on all devices.
	While bool
}

// ShardedTensor is a Tensor with its dtype, its shapes and its sharding, from which a runtime makes
// or reads the buffers of the devices. Shapes count elements and are row-major.
type ShardedTensor struct {
	Tensor
	DType dtypes.DType
	// Local is the shape in a replica, which of a tensor in parts is that of a part, Global the shape of the module's argument or result, and
	// Shard the shape of the part that one device holds.
	Local, Global, Shard []int
	// Spec says which part of Global each device of the mesh holds.
	Spec sharding.Spec
	// Origin is the line that an argument is for; nil for a result.
	Origin *ir.Origin
}

// Module is an assembled step.
type Module struct {
	Name string
	// Text is StableHLO in MLIR's text form.
	Text []byte
	// Origins say where the statements come from that the text numbers: see [ir.Module.Text].
	Origins []*ir.Origin
	// Mesh is the mesh of the specs. Its device i is partition i of the program, or replica i where
	// the program has several replicas.
	Mesh sharding.Mesh
	// Logical are the logical axes of a replica, as the options name them. The axes of Mesh after
	// that of the replicas are those of Logical, or pieces of them.
	Logical sharding.Mesh
	// Replicas and Partitions are the numbers of copies of the program and of parts of each, for
	// the compiler. They are 1 and R x P, and the arguments are then global tensors with shardings
	// for Shardy; or R and 1, and the arguments are then the tensors of one device.
	Replicas, Partitions int
	// Arguments and Results describe the buffers that each device takes and gives, in order.
	Arguments, Results []ShardedTensor
	// Policies are the rematerialization policies of the layer loops and blocks that have a backward pass.
	Policies []Policy

	source *source // what it was assembled from; nil if that is not kept
}

// Policy is the rematerialization policy of a layer loop or of a block.
type Policy struct {
	region.Keep
	Loop bool // false for a block
}

// place works out the shapes of a tensor at the border.
func (w *writer) place(kind string, t Tensor, steps int, dtype dtypes.DType, local []int) (ShardedTensor, error) {
	if t.Over.Is() && t.Over.Dim < len(local) && local[t.Over.Dim] == t.Over.Size && kind == "argument" {
		local = t.Over.Parts(local, w.replicas)
	}
	p := ShardedTensor{Tensor: t, DType: dtype, Local: local}
	name := t.Name
	if name == "" {
		name = kind
	}
	if dtype.IsPacked() {
		return p, packed(kind, name, dtype)
	}
	if err := t.Annotation.ValidateOn(w.trace.mesh, name, local); err != nil {
		return p, err
	}
	spec := t.Annotation.Spec(len(local), w.factors)
	p.Global = append([]int(nil), local...)
	if t.PerReplica {
		dims := spec.Dims()
		if len(local) == 0 {
			p.Global, dims = []int{1}, []sharding.Dim{{}}
		}
		p.Global[0] *= w.replicas
		dims[0].Axes = append([]string{ReplicaAxis}, dims[0].Axes...)
		spec = sharding.NewSpec(dims...)
	}
	if t.Over.Is() {
		d, dims := t.Over.Dim, spec.Dims()
		if t.PerReplica || t.PerStep || d >= len(local) || local[d] != t.Over.Part(w.replicas) || w.divides(dims[d]) {
			return p, fault(fmt.Sprintf("%s %q", kind, name), fmt.Sprintf("%v, %s: it is not a part of %s over %d replicas", local, t.Annotation, t.Over, w.replicas),
				"cut a dimension that is not split over the logical devices, and give results as parts")
		}
		p.Global[d] *= w.replicas
		dims[d].Axes = []string{ReplicaAxis}
		spec = sharding.NewSpec(dims...)
	}
	if t.PerStep {
		if steps == 0 || kind == "result" || t.Donated {
			return p, fault(fmt.Sprintf("%s %q", kind, name), "per step: only arguments of a loop that are not donated can be", "leave PerStep unset, or set Signature.Steps")
		}
		p.Global = append([]int{steps}, p.Global...)
		spec = spec.WithLeading(sharding.Dim{})
	}
	p.Spec = spec
	var err error
	if p.Shard, err = sharding.ShardShape(w.mesh, spec, p.Global); err != nil {
		return p, &errkind.Fault{Op: "module:", Subject: fmt.Sprintf("%s %q", kind, name), Class: errkind.InvalidArgumentError, Err: err}
	}
	return p, nil
}

// divides reports whether a dimension is in parts: axes of one device split nothing.
func (w *writer) divides(d sharding.Dim) bool {
	return slices.ContainsFunc(d.Axes, func(name string) bool {
		n, _ := w.mesh.AxisSize(name)
		return n > 1
	})
}

// checkWhile holds a loop's condition against the step's results.
func (m *Module) checkWhile(sig Signature) error {
	switch {
	case !sig.While:
	case sig.Steps == 0:
		return fault(fmt.Sprintf("step %q", m.Name), "a result says whether it runs again, and it is in no loop", "set Signature.Steps")
	case len(m.Results) == 0 || m.Results[0].DType != dtypes.Bool || len(m.Results[0].Local) > 0:
		return fault(fmt.Sprintf("step %q", m.Name), "its first result is not whether it runs again", "give a scalar of Bool first")
	}
	return nil
}

// check holds the donations of a signature against its results, and the sizes of both against what
// memory can address.
func (m *Module) check() error {
	for _, placed := range slices.Concat(m.Arguments, m.Results) {
		if global := ir.Tensor(placed.DType, placed.Global...); !global.Addressable() {
			return fault(fmt.Sprintf("tensor %q", placed.Name), fmt.Sprintf("%s has more elements than memory can address", global), "make it smaller")
		}
	}
	taken := map[int]string{}
	for _, a := range m.Arguments {
		if !a.Donated {
			continue
		}
		if a.Result < 0 || a.Result >= len(m.Results) {
			return fault(fmt.Sprintf("argument %q", a.Name), fmt.Sprintf("it is donated to result %d of %d", a.Result, len(m.Results)), "name the result that takes its memory")
		}
		r := m.Results[a.Result]
		if other, ok := taken[a.Result]; ok {
			return fault(fmt.Sprintf("arguments %q and %q", other, a.Name), fmt.Sprintf("both are donated to the same result %q", r.Name), "donate one of them")
		}
		taken[a.Result] = a.Name
		if a.DType != r.DType || !slices.Equal(a.Global, r.Global) || !a.Spec.Equal(r.Spec) {
			return fault(fmt.Sprintf("argument %q", a.Name), fmt.Sprintf("it (%s %v %s) is donated to result %q (%s %v %s)",
				a.DType, a.Global, a.Spec, r.Name, r.DType, r.Global, r.Spec), "they must be alike, in dtype, shape and placement")
		}
	}
	return nil
}
