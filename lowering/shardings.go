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

// GoMLX passes shardings with the parameters and the results of a graph that it distributes itself.
// Under DistributedAutoSharding the partitioner applies a sharding. Under DistributedSPMD each
// device runs the program on its own tensors, the shapes are already per device, and the sharding
// only tells GoMLX how the tensors of all devices form one tensor; the sharding is not written.
//
// Compile returns the first invalid sharding or mesh. GoMLX turns an earlier error into a panic
// outside of its recover, and its Exec then waits forever for the compilation.

// sharding converts the sharding of a parameter or a result of the entry function; nil is
// replicated. It returns the sharding to write, nil for none, and the shape on each device.
func (b *Builder) sharding(of string, shape shapes.Shape, spec *compute.ShardingSpec) (*shardy.ShardingSpec, shapes.Shape, error) {
	switch {
	case !b.distributed && spec != nil:
		return nil, shape, noMesh(spec)
	case len(b.meshes) == 0:
		return nil, shape, nil
	case spec == nil:
		return shardy.NewShardingSpec(b.all()), shape, nil
	}
	out, shard, err := b.divide(shape, spec)
	if err != nil {
		b.refuse(&errkind.Fault{Op: "lowering: sharding of", Subject: of, Class: errkind.KindOr(err, errkind.InvalidArgumentError), Err: err})
		return nil, shape, nil
	}
	return out, shard, nil
}

// all returns the first mesh that contains all devices of the computation.
func (b *Builder) all() *shardy.DeviceMesh {
	return slices.MaxFunc(b.meshes, func(x, y *shardy.DeviceMesh) int { return cmp.Compare(x.NumDevices(), y.NumDevices()) })
}

// refuse records the first error for Compile.
func (b *Builder) refuse(err error) {
	if b.refused == nil {
		b.refused = err
	}
}

// noMesh returns an error for a sharding over an undefined mesh.
func noMesh(spec *compute.ShardingSpec) error {
	return fmt.Errorf("mesh %q is not among those given to DistributedAutoSharding", spec.Mesh)
}

// divide checks a sharding and returns the shape of one shard.
func (b *Builder) divide(shape shapes.Shape, spec *compute.ShardingSpec) (*shardy.ShardingSpec, shapes.Shape, error) {
	i := slices.IndexFunc(b.meshes, func(m *shardy.DeviceMesh) bool { return m.Name() == spec.Mesh })
	if i < 0 {
		return nil, shape, noMesh(spec)
	}
	mesh, shard := b.meshes[i], shape.Clone()
	if mesh.NumDevices() != b.partitions {
		if !slices.ContainsFunc(spec.Axes, func(axes []string) bool { return len(axes) > 0 }) {
			return shardy.NewShardingSpec(b.all()), shape, nil
		}
		return nil, shape, &errkind.Fault{Op: shape.String(), Reason: fmt.Sprintf("mesh %q has %d devices, the computation runs on the %d of mesh %q", spec.Mesh, mesh.NumDevices(), b.partitions, b.all().Name()),
			Hint: "split tensors over meshes of all devices", Class: errkind.InvalidArgumentError}
	}
	if len(spec.Axes) > shape.Rank() {
		return nil, shape, &errkind.Fault{Op: shape.String(), Reason: fmt.Sprintf("the sharding is of %d dimensions, the tensor has %d", len(spec.Axes), shape.Rank()),
			Hint: "name axes of the mesh for each dimension of the tensor at most", Class: errkind.InvalidArgumentError}
	}
	out, used := shardy.NewShardingSpec(mesh), map[string]bool{}
	for dim, axes := range spec.Axes {
		parts := 1
		for _, axis := range axes {
			size, err := mesh.AxisSize(axis)
			switch {
			case err != nil:
				return nil, shape, &errkind.Fault{Op: shape.String(), Reason: fmt.Sprintf("dimension %d is split over axis %q, which mesh %q does not have", dim, axis, spec.Mesh),
					Hint: fmt.Sprintf("its axes are %q", mesh.AxesNames()), Class: errkind.InvalidArgumentError}
			case used[axis]:
				return nil, shape, &errkind.Fault{Op: shape.String(), Reason: fmt.Sprintf("axis %q splits it twice", axis),
					Hint: "use each axis of the mesh for one dimension", Class: errkind.InvalidArgumentError}
			}
			used[axis] = true
			parts *= size
		}
		if shape.Dimensions[dim]%parts != 0 {
			return nil, shape, &errkind.Fault{Op: shape.String(), Reason: fmt.Sprintf("dimension %d of size %d does not split into %d equal parts over %q", dim, shape.Dimensions[dim], parts, axes),
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

// resultShardings converts the shardings of the results of the entry function. Without a list, the
// partitioner decides the sharding of a result if a parameter of the same shape is split, because
// the result may be the next value of that parameter: GoMLX expects that a variable keeps its
// sharding. With a list, GoMLX uses the sharding of the last result for the next values of
// variables too; a sharding that does not divide the shape is replicated if the variable is
// replicated.
func (f *Function) resultShardings(results []shapes.Shape, list []*compute.ShardingSpec) ([]*shardy.ShardingSpec, error) {
	b := f.builder
	out := make([]*shardy.ShardingSpec, len(results))
	for i, shape := range results {
		var spec *compute.ShardingSpec
		if len(list) > 0 {
			spec = list[i]
		} else if f.splits(shape) {
			continue
		}
		if f.wholeVariable(shape) && b.uneven(shape, spec) {
			spec = nil
		}
		var err error
		if out[i], _, err = b.sharding(fmt.Sprintf("result %d", i), shape, spec); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return out, nil
}

// splits reports whether a parameter of the shape is split.
func (f *Function) splits(shape shapes.Shape) bool {
	for i, p := range f.parameters {
		if p.Equal(shape) && !f.shards[i].Equal(shape) {
			return true
		}
	}
	return false
}

// wholeVariable reports whether a variable of the shape is replicated.
func (f *Function) wholeVariable(shape shapes.Shape) bool {
	for i, p := range f.parameters {
		if p.Equal(shape) && f.shards[i].Equal(shape) && strings.HasPrefix(f.parameterNames[i], "/") {
			return true
		}
	}
	return false
}

// uneven reports whether a sharding is valid except for a dimension that it does not divide.
func (b *Builder) uneven(shape shapes.Shape, spec *compute.ShardingSpec) bool {
	if spec == nil || len(spec.Axes) > shape.Rank() {
		return false
	}
	divisible := shape.Clone()
	for dim := range divisible.Dimensions {
		divisible.Dimensions[dim] = 0 // 0 is divisible by any number
	}
	_, _, wrong := b.divide(divisible, spec)
	_, _, err := b.divide(shape, spec)
	return wrong == nil && err != nil
}

// namedShardings converts the shardings of the results of a named function. Without a list the
// partitioner decides them.
func (f *Function) namedShardings(results []shapes.Shape, list []*compute.ShardingSpec) ([]*shardy.ShardingSpec, error) {
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
		if out[i], _, err = f.builder.sharding(fmt.Sprintf("result %d of function %q", i, f.name), results[i], spec); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return out, nil
}

// ordered returns an error for a mesh with its own device order. GoMLX (package dtensor) ignores
// the order when it splits and joins tensors.
func ordered(m compute.Mesh) error {
	for place, device := range m.LogicalDeviceAssignment {
		if place != device {
			return fault(fmt.Sprintf("mesh %q", m.Name), "it has an order of its own for its devices", "name the devices in that order in DeviceAssignment")
		}
	}
	return nil
}

// replicateMark marks a value that is replicated over all devices.
type replicateMark struct{}

// replicateInGrids replicates a value of a program that GoMLX splits over a mesh in which two or
// more axes have more than one device.
func (f *Function) replicateInGrids(x *stablehlo.Value) *stablehlo.Value {
	divided := 0
	for _, size := range f.builder.all().AxesSizes() {
		if size > 1 {
			divided++
		}
	}
	if divided < 2 {
		return x
	}
	return must(f.Mark(x, x.Shape(), replicateMark{}))
}

// constrainMarked replaces each replicateMark by a sharding constraint.
func (b *Builder) constrainMarked(f *ir.Function) *ir.Function {
	if len(b.meshes) == 0 {
		return f
	}
	written := *f
	written.Body = ir.Map(f.Body, func(s *ir.Statement) *ir.Statement {
		if _, ok := s.Mark.(replicateMark); !ok {
			return s
		}
		return b.constraint(s.Results[0], s.Operands[0], indices(s.Results[0].Type.Rank()))
	})
	return &written
}

// constraint returns a sharding constraint that replicates dims and leaves the other dimensions open.
func (b *Builder) constraint(out, in *ir.Value, dims []int) *ir.Statement {
	split := slices.Repeat([]string{"{?}"}, in.Type.Rank())
	for _, d := range dims {
		split[d] = "{}"
	}
	s := &ir.Statement{Op: "sdy.sharding_constraint", Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Form: ir.Custom}
	return s.AddAttribute(ir.ShardingKey, ir.Raw("<@"+b.all().Name()+", ["+strings.Join(split, ", ")+"]>"))
}
