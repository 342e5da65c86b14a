package lowering

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types/shardy"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// GoMLX passes shardings for the parameters and results of a graph that it distributes itself. With
// DistributedAutoSharding, Shardy applies them. With DistributedSPMD, each device runs the program
// on its own tensors, the shapes are already per device, and shardings are not written.
//
// Compile returns the first invalid sharding or mesh. GoMLX would convert an earlier error into a
// panic that it does not recover, and its Exec would wait for the compilation forever.

// convertSharding converts the sharding of a parameter or result of the entry function for the
// StableHLO builder; nil means replicated. It returns nil if no sharding must be written. It also
// returns the shape of the shard on each device. Errors contain of, the name of the tensor.
func (b *Builder) convertSharding(of string, shape shapes.Shape, spec *compute.ShardingSpec) (*shardy.ShardingSpec,
	shapes.Shape, error) {
	switch {
	case !b.distributed && spec != nil:
		return nil, shape, unknownMeshError(spec)
	case len(b.meshes) == 0:
		return nil, shape, nil
	case spec == nil:
		return shardy.NewShardingSpec(b.largestMesh()), shape, nil
	}
	out, shard, err := b.shardShape(shape, spec)
	if err != nil {
		b.deferError(&errkind.Fault{Op: "lowering: sharding of", Subject: of, Class: errkind.KindOr(err,
			errkind.InvalidArgumentError), Err: err})
		return nil, shape, nil
	}
	return out, shard, nil
}

// largestMesh returns the mesh with the most devices, which contains all devices.
func (b *Builder) largestMesh() *shardy.DeviceMesh {
	return slices.MaxFunc(b.meshes, func(x, y *shardy.DeviceMesh) int {
		return cmp.Compare(x.NumDevices(),
			y.NumDevices())
	})
}

// deferError records an error that Compile returns. It keeps only the first error.
func (b *Builder) deferError(err error) {
	if b.deferredErr == nil {
		b.deferredErr = err
	}
}

func unknownMeshError(spec *compute.ShardingSpec) error {
	return fmt.Errorf("mesh %q is not among those given to DistributedAutoSharding", spec.Mesh)
}

// shardShape converts a sharding and returns the shape of one shard. It returns an error if the
// sharding does not fit the mesh or the shape.
func (b *Builder) shardShape(shape shapes.Shape, spec *compute.ShardingSpec) (*shardy.ShardingSpec, shapes.Shape,
	error) {
	i := slices.IndexFunc(b.meshes, func(m *shardy.DeviceMesh) bool { return m.Name() == spec.Mesh })
	if i < 0 {
		return nil, shape, unknownMeshError(spec)
	}
	mesh, shard := b.meshes[i], shape.Clone()
	if mesh.NumDevices() != b.partitions {
		if !slices.ContainsFunc(spec.Axes, func(axes []string) bool { return len(axes) > 0 }) {
			return shardy.NewShardingSpec(b.largestMesh()), shape, nil
		}
		return nil, shape, &errkind.Fault{Op: shape.String(),
			Reason: fmt.Sprintf("mesh %q has %d devices, the computation runs on the %d of mesh %q", spec.Mesh,
				mesh.NumDevices(), b.partitions, b.largestMesh().Name()),
			Hint: "split tensors over meshes of all devices", Class: errkind.InvalidArgumentError}
	}
	if len(spec.Axes) > shape.Rank() {
		return nil, shape, &errkind.Fault{Op: shape.String(),
			Reason: fmt.Sprintf("the sharding is of %d dimensions, the tensor has %d", len(spec.Axes), shape.Rank()),
			Hint:   "name axes of the mesh for each dimension of the tensor at most", Class: errkind.InvalidArgumentError}
	}
	out, used := shardy.NewShardingSpec(mesh), map[string]bool{}
	for dim, axes := range spec.Axes {
		parts := 1
		for _, axis := range axes {
			size, err := mesh.AxisSize(axis)
			switch {
			case err != nil:
				return nil, shape, &errkind.Fault{Op: shape.String(),
					Reason: fmt.Sprintf("dimension %d is split over axis %q, which mesh %q does not have", dim, axis, spec.Mesh),
					Hint:   fmt.Sprintf("its axes are %q", mesh.AxesNames()), Class: errkind.InvalidArgumentError}
			case used[axis]:
				return nil, shape, &errkind.Fault{Op: shape.String(), Reason: fmt.Sprintf("axis %q splits it twice", axis),
					Hint: "use each axis of the mesh for one dimension", Class: errkind.InvalidArgumentError}
			}
			used[axis] = true
			parts *= size
		}
		if shape.Dimensions[dim]%parts != 0 {
			return nil, shape, &errkind.Fault{Op: shape.String(),
				Reason: fmt.Sprintf("dimension %d of size %d does not split into %d equal parts over %q", dim,
					shape.Dimensions[dim], parts, axes),
				Hint: "make the size a multiple, or do not split this dimension", Class: errkind.InvalidArgumentError}
		}
		shard.Dimensions[dim] /= parts
		if len(axes) == 0 {
			out.AddReplicated()
		} else {
			out.AddShardedAxis(axes...)
		}
	}
	return out, shard, nil
}

// mainResultShardings converts the shardings of the entry function's results. Without a list, a
// result with the shape of a sharded parameter has no sharding: it may be the parameter's next
// value, and the partitioner then keeps the parameter's sharding. With a list, GoMLX also passes
// the last sharding for the next values of variables. A replicated variable stays replicated if
// this sharding does not divide its shape.
func (f *Function) mainResultShardings(results []shapes.Shape, list []*compute.ShardingSpec) ([]*shardy.ShardingSpec,
	error) {
	b := f.builder
	out := make([]*shardy.ShardingSpec, len(results))
	for i, shape := range results {
		var spec *compute.ShardingSpec
		if len(list) > 0 {
			spec = list[i]
		} else if f.hasShardedParameter(shape) {
			continue
		}
		if f.hasReplicatedVariable(shape) && b.isIndivisible(shape, spec) {
			spec = nil
		}
		var err error
		if out[i], _, err = b.convertSharding(fmt.Sprintf("result %d", i), shape, spec); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return out, nil
}

func (f *Function) hasShardedParameter(shape shapes.Shape) bool {
	for i, p := range f.parameters {
		if p.Equal(shape) && !f.shards[i].Equal(shape) {
			return true
		}
	}
	return false
}

func (f *Function) hasReplicatedVariable(shape shapes.Shape) bool {
	for i, p := range f.parameters {
		if p.Equal(shape) && f.shards[i].Equal(shape) && strings.HasPrefix(f.parameterNames[i], "/") {
			return true
		}
	}
	return false
}

// isIndivisible reports whether the only problem of a sharding is a dimension that the number of
// shards does not divide.
func (b *Builder) isIndivisible(shape shapes.Shape, spec *compute.ShardingSpec) bool {
	if spec == nil || len(spec.Axes) > shape.Rank() {
		return false
	}
	divisible := shape.Clone()
	for dim := range divisible.Dimensions {
		divisible.Dimensions[dim] = 0 // 0 is divisible by any number
	}
	_, _, wrong := b.shardShape(divisible, spec)
	_, _, err := b.shardShape(shape, spec)
	return wrong == nil && err != nil
}

// calledResultShardings converts the shardings of the results of a function other than main. If the
// list is nil, the partitioner selects the shardings.
func (f *Function) calledResultShardings(results []shapes.Shape, list []*compute.ShardingSpec) ([]*shardy.ShardingSpec,
	error) {
	if !slices.ContainsFunc(list, func(s *compute.ShardingSpec) bool { return s != nil }) {
		return nil, nil
	}
	if f.parent != nil {
		return nil, errors.New("results of a closure have no shardings: give them to those of the function around it")
	}
	out := make([]*shardy.ShardingSpec, len(results))
	for i, spec := range list {
		if spec == nil {
			continue
		}
		var err error
		if out[i], _, err = f.builder.convertSharding(fmt.Sprintf("result %d of function %q", i, f.name), results[i],
			spec); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return out, nil
}

// checkDeviceOrder returns an error for a mesh that reorders its devices, because GoMLX (package
// dtensor) ignores the order when it shards and gathers tensors.
func checkDeviceOrder(m compute.Mesh) error {
	for place, device := range m.LogicalDeviceAssignment {
		if place != device {
			return newFault(fmt.Sprintf("mesh %q", m.Name), "it has an order of its own for its devices",
				"name the devices in that order in DeviceAssignment")
		}
	}
	return nil
}

// replicatePlaceholder represents a sharding constraint that replicates a value over all devices.
type replicatePlaceholder struct{}

// replicateOnGrid replicates x if two or more mesh axes have several devices.
func (f *Function) replicateOnGrid(x *stablehlo.Value) *stablehlo.Value {
	divided := 0
	for _, size := range f.builder.largestMesh().AxesSizes() {
		if size > 1 {
			divided++
		}
	}
	if divided < 2 {
		return x
	}
	return must(f.AddPlaceholder(x, x.Shape(), replicatePlaceholder{}))
}

// lowerReplications replaces each replicatePlaceholder by a sharding constraint.
func (b *Builder) lowerReplications(f *ir.Function) *ir.Function {
	if len(b.meshes) == 0 {
		return f
	}
	written := *f
	written.Body = ir.Map(f.Body, func(s *ir.Statement) *ir.Statement {
		if _, ok := s.Placeholder.(replicatePlaceholder); !ok {
			return s
		}
		return b.constraint(s.Results[0], s.Operands[0], indices(s.Results[0].Type.Rank()))
	})
	return &written
}

// constraint returns a sharding constraint that replicates dims and leaves the sharding of other
// dimensions to the partitioner.
func (b *Builder) constraint(out, in *ir.Value, dims []int) *ir.Statement {
	split := slices.Repeat([]string{"{?}"}, in.Type.Rank())
	for _, d := range dims {
		split[d] = "{}"
	}
	s := &ir.Statement{Op: "sdy.sharding_constraint", Operands: []*ir.Value{in}, Results: []*ir.Value{out},
		Form: ir.Custom}
	return s.AddAttribute(ir.ShardingKey, ir.Raw("<@"+b.largestMesh().Name()+", ["+strings.Join(split, ", ")+"]>"))
}
