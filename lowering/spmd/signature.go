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

// ReplicaAxis is the name of the mesh axis of the replicas. LogicalAxis is the name of the mesh
// axis of a replica's logical devices, unless Options.LogicalAxes defines other axes.
const (
	ReplicaAxis = logical.ReplicaAxis
	LogicalAxis = logical.LogicalAxis
)

const meshName = "mesh"

// Tensor specifies how an argument or result of the step is placed on the devices.
type Tensor struct {
	// Name is used in reports and errors.
	Name string
	// PerReplica is set for a tensor that differs between replicas. Other tensors are mirrored.
	PerReplica bool
	// ReplicaShard describes how the tensor is sharded over the replicas. The global tensor is the
	// concatenation of the shards. The step's parameter is the shard, or the unsharded tensor,
	// which the module then gathers. A result is a shard. ReplicaShard excludes PerReplica.
	ReplicaShard ReplicaShard
	// Annotation splits the tensor over the logical devices. A tensor assigned to one device is
	// replicated.
	Annotation logical.Annotation
	// PerStep is set for an argument with a different value for each step of the signature, stacked
	// along a leading dimension.
	PerStep bool
	// Donated is set for an argument that shares its memory with the result at index Result. The
	// result must have the same shape and placement.
	Donated bool
	Result  int
	// IsConstant is set for an argument that replaces a constant of the step.
	IsConstant bool
}

// Signature describes the arguments and results of a step function. The arguments are in the order
// of its parameters, without the replica id.
type Signature struct {
	Arguments, Results []Tensor
	// Steps is the number of steps that the module runs, in a loop on the devices. Donated
	// arguments carry over to the next step. Other results are those of the last step. 0 runs one
	// step without a loop.
	Steps int
	// While makes the first result, a Bool scalar, the loop condition: the step is repeated as long
	// as the result is true, at most Steps times. The result must be the same on all devices.
	While bool
}

// ShardedTensor is a Tensor with its dtype, shapes and sharding, from which a runtime creates
// device buffers. Buffers are row-major.
type ShardedTensor struct {
	Tensor
	DType dtypes.DType
	// LocalDims is the shape in a replica, or the shape of the shard of a tensor with a
	// ReplicaShard. GlobalDims is the shape of the module's argument or result. ShardDims is the
	// shape on one device.
	LocalDims, GlobalDims, ShardDims []int
	// Spec is the sharding of GlobalDims over the mesh.
	Spec sharding.Spec
	// Origin is the line that first reads an argument. It is nil for a result.
	Origin *ir.Origin
}

// Module is an assembled step.
type Module struct {
	Name string
	// Text is the program in StableHLO, as MLIR text.
	Text []byte
	// Origins contains the origins of the numbered statements, see [ir.Module.Text].
	Origins []*ir.Origin
	// Mesh is the mesh of all shardings. Its device i is partition i of the program, or replica i
	// if the program has several replicas.
	Mesh sharding.Mesh
	// LogicalMesh contains the logical axes with the names of the options. Mesh contains these
	// axes, or factors of them, after the replica axis.
	LogicalMesh sharding.Mesh
	// Replicas and Partitions are the numbers of replicas and partitions for the compiler. They are
	// usually 1 and R*P, and arguments are then global tensors with Shardy shardings. With
	// Options.AllowReplicaProgram they can be R and 1, and arguments are then tensors of one
	// device.
	Replicas, Partitions int
	// Arguments and Results describe the input and output buffers of each device, in order.
	Arguments, Results []ShardedTensor
	// Policies contains the rematerialization policies of layer loops and blocks with a backward
	// pass.
	Policies []Policy

	input *assemblyInput // inputs of the assembly; nil after ReleaseTrace
}

// Policy is the rematerialization policy of a layer loop or a block.
type Policy struct {
	region.RematPolicy
	IsLoop bool // false for a block
}

func (w *assembler) placeTensor(kind string, t Tensor, steps int, dtype dtypes.DType,
	local []int) (ShardedTensor, error) {
	if t.ReplicaShard.IsSharded() && t.ReplicaShard.Dim < len(local) &&
		local[t.ReplicaShard.Dim] == t.ReplicaShard.Size && kind == "argument" {
		local = t.ReplicaShard.ShardDims(local, w.replicas)
	}
	p := ShardedTensor{Tensor: t, DType: dtype, LocalDims: local}
	name := t.Name
	if name == "" {
		name = kind
	}
	if dtype.IsPacked() {
		return p, packedDTypeError(kind, name, dtype)
	}
	if err := t.Annotation.ValidateOn(w.trace.mesh, name, local); err != nil {
		return p, err
	}
	spec := t.Annotation.Spec(len(local), w.factors)
	p.GlobalDims = append([]int(nil), local...)
	if t.PerReplica {
		dims := spec.Dims()
		if len(local) == 0 {
			p.GlobalDims, dims = []int{1}, []sharding.Dim{{}}
		}
		p.GlobalDims[0] *= w.replicas
		dims[0].Axes = append([]string{ReplicaAxis}, dims[0].Axes...)
		spec = sharding.NewSpec(dims...)
	}
	if t.ReplicaShard.IsSharded() {
		d, dims := t.ReplicaShard.Dim, spec.Dims()
		if t.PerReplica || t.PerStep || d >= len(local) || local[d] != t.ReplicaShard.ShardSize(w.replicas) ||
			w.isSplit(dims[d]) {
			return p, newFault(fmt.Sprintf("%s %q", kind, name),
				fmt.Sprintf("%v, %s: it is not a shard of %s over %d replicas", local, t.Annotation, t.ReplicaShard,
					w.replicas),
				"shard a dimension that is not split over the logical devices, and return results as shards")
		}
		p.GlobalDims[d] *= w.replicas
		dims[d].Axes = []string{ReplicaAxis}
		spec = sharding.NewSpec(dims...)
	}
	if t.PerStep {
		if steps == 0 || kind == "result" || t.Donated {
			return p, newFault(fmt.Sprintf("%s %q", kind, name),
				"per step: only arguments of a loop that are not donated can be",
				"leave PerStep unset, or set Signature.Steps")
		}
		p.GlobalDims = append([]int{steps}, p.GlobalDims...)
		spec = spec.WithLeading(sharding.Dim{})
	}
	p.Spec = spec
	var err error
	if p.ShardDims, err = sharding.ShardShape(w.mesh, spec, p.GlobalDims); err != nil {
		return p, &errkind.Fault{Op: "module:", Subject: fmt.Sprintf("%s %q", kind, name),
			Class: errkind.InvalidArgumentError, Err: err}
	}
	return p, nil
}

// isSplit reports whether a dimension is split over more than one device.
func (w *assembler) isSplit(d sharding.Dim) bool {
	return slices.ContainsFunc(d.Axes, func(name string) bool {
		n, _ := w.mesh.AxisSize(name)
		return n > 1
	})
}

func (m *Module) checkWhile(sig Signature) error {
	switch {
	case !sig.While:
	case sig.Steps == 0:
		return newFault(fmt.Sprintf("step %q", m.Name), "Signature.While is set, but the step is not in a loop",
			"set Signature.Steps")
	case len(m.Results) == 0 || m.Results[0].DType != dtypes.Bool || len(m.Results[0].LocalDims) > 0:
		return newFault(fmt.Sprintf("step %q", m.Name),
			"Signature.While is set, but the first result is not a scalar of Bool",
			"return the loop condition, a scalar of Bool, first")
	}
	return nil
}

// check returns an error if a donated argument does not match the result that reuses its memory, or
// if a tensor is too large to address.
func (m *Module) check() error {
	for _, placed := range slices.Concat(m.Arguments, m.Results) {
		if global := ir.TensorType(placed.DType, placed.GlobalDims...); !global.IsAddressable() {
			return newFault(fmt.Sprintf("tensor %q", placed.Name),
				fmt.Sprintf("%s has more elements than memory can address", global), "use smaller dimensions")
		}
	}
	donated := map[int]string{}
	for _, a := range m.Arguments {
		if !a.Donated {
			continue
		}
		if a.Result < 0 || a.Result >= len(m.Results) {
			return newFault(fmt.Sprintf("argument %q", a.Name), fmt.Sprintf("it is donated to result %d of %d",
				a.Result, len(m.Results)), "use the index of the result that shares its memory")
		}
		r := m.Results[a.Result]
		if donor, ok := donated[a.Result]; ok {
			return newFault(fmt.Sprintf("arguments %q and %q", donor, a.Name),
				fmt.Sprintf("both are donated to the same result %q", r.Name), "donate one of them")
		}
		donated[a.Result] = a.Name
		if a.DType != r.DType || !slices.Equal(a.GlobalDims, r.GlobalDims) || !a.Spec.Equal(r.Spec) {
			return newFault(fmt.Sprintf("argument %q", a.Name),
				fmt.Sprintf("it (%s %v %s) is donated to result %q (%s %v %s)",
					a.DType, a.GlobalDims, a.Spec, r.Name, r.DType, r.GlobalDims,
					r.Spec), "they must have the same dtype, shape and placement")
		}
	}
	return nil
}
