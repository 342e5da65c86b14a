package spmd

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// GlobalTensor specifies how an argument or result of a global program is sharded.
type GlobalTensor struct {
	// Name is used in reports and errors.
	Name string
	// Spec is the sharding of the tensor.
	Spec sharding.Spec
	// InnerSpec, if not nil, is the sharding of the argument inside the program. An argument that
	// Spec shards over other axes is gathered once, before its first use.
	InnerSpec *sharding.Spec
	// AutoSharded ignores Spec and lets the partitioner select the sharding of a result.
	AutoSharded bool
	// Donated arguments share their memory with the result at index Result, which must have the
	// same shape and Spec.
	Donated bool
	Result  int
}

// GlobalSignature specifies the mesh, arguments and results of a global program.
type GlobalSignature struct {
	// Mesh consists of [ReplicaAxis] followed by the axes of Logical.
	Mesh, Logical sharding.Mesh
	// Arguments and Results contain one element per argument and result of the program, in order.
	Arguments, Results []GlobalTensor
}

// AssembleGlobal assembles a program whose tensors are global. Only arguments, and results that are
// not AutoSharded, have shardings; the partitioner selects all others. Use it for a graph without
// annotations and collectives of this package, and [Trace.Module] for others. If the mesh has one
// device, the module has no mesh. The program p is not changed.
func AssembleGlobal(p *lowering.Program, f GlobalSignature) (*Module, error) {
	main := p.Main()
	if len(f.Arguments) != len(main.Parameters) || len(f.Results) != len(main.Results) {
		return nil, newFault(fmt.Sprintf("program %q", p.Name),
			fmt.Sprintf("the program has %d arguments and %d results, but the signature has %d and %d",
				len(main.Parameters), len(main.Results), len(f.Arguments), len(f.Results)), "pass one placement for each")
	}
	m := &Module{Name: p.Name, Mesh: f.Mesh, LogicalMesh: f.Logical, Replicas: 1, Partitions: f.Mesh.Size()}
	var err error
	if m.Arguments, err = placeGlobalTensors(f, "argument", f.Arguments, p.Parameters); err != nil {
		return nil, err
	}
	for i, a := range main.Parameters {
		m.Arguments[i].Origin = a.Origin
	}
	if m.Results, err = placeGlobalTensors(f, "result", f.Results, p.Outputs); err != nil {
		return nil, err
	}
	if err := errors.Join(m.check(), p.Check(m.Partitions)); err != nil {
		return nil, err
	}
	single := f.Mesh.Size() == 1
	program := &ir.Module{
		Name: p.Module.Name,
		Attributes: []ir.Attribute{{Key: "mhlo.num_replicas", Value: ir.Int32(1)},
			{Key: "mhlo.num_partitions", Value: ir.Int32(m.Partitions)}},
	}
	if !single {
		program.Meshes = []ir.Attr{meshAttr(f.Mesh)}
	}
	for i, function := range p.Module.Functions {
		if err := rejectPlaceholders(function); err != nil {
			return nil, err
		}
		written := *function
		if !single {
			written.Body = foldTransposes(written.Body)
		}
		written.Private = i > 0
		if i == 0 {
			written.Parameters, written.Results = nil, nil
			var gathered []*ir.Statement
			for k, a := range function.Parameters {
				a.Attributes = mainAttributes(m.Arguments[k], false, single)
				if inside := f.Arguments[k].InnerSpec; inside != nil && !single {
					parts := &ir.Value{Name: a.Value.Name + "_parts", Type: a.Value.Type}
					gathered, a.Value = append(gathered, shardingConstraintOp(a.Value, parts, *inside)), parts
				}
				written.Parameters = append(written.Parameters, a)
			}
			written.Body = append(gathered, written.Body...)
			for k, r := range function.Results {
				r.Attributes = mainAttributes(m.Results[k], f.Results[k].AutoSharded, single)
				written.Results = append(written.Results, r)
			}
		}
		program.Functions = append(program.Functions, &written)
	}
	if !single {
		program = lowering.ReplicateUnsplittableDims(program, p.Target, replicateDims)
		program.Functions = widenTwoBits(program.Functions)
	}
	if m.Text, m.Origins, err = program.Text(); err != nil {
		return nil, &errkind.Fault{Op: "module: write", Subject: fmt.Sprintf("program %q", p.Name), Err: err}
	}
	return m, nil
}

func placeGlobalTensors(signature GlobalSignature, kind string, placements []GlobalTensor,
	allShapes []shapes.Shape) ([]ShardedTensor, error) {
	placed := make([]ShardedTensor, len(placements))
	for i, placement := range placements {
		name := placement.Name
		if name == "" {
			name = fmt.Sprintf("%s %d", kind, i)
		}
		dims := append([]int{}, allShapes[i].Dimensions...)
		if placement.AutoSharded {
			placement.Spec = sharding.Replicated(len(dims))
		}
		placed[i] = ShardedTensor{Tensor: Tensor{Name: name, Donated: placement.Donated, Result: placement.Result},
			DType: allShapes[i].DType, LocalDims: dims, GlobalDims: dims, Spec: placement.Spec}
		if err := placement.Spec.ValidateTensor(signature.Mesh, name, dims); err != nil {
			return nil, err
		}
		var err error
		if placed[i].ShardDims, err = sharding.ShardShape(signature.Mesh, placement.Spec, dims); err != nil {
			return nil, err
		}
	}
	return placed, nil
}

func mainAttributes(tensor ShardedTensor, open, single bool) (attributes []ir.Attribute) {
	if !single && !open {
		attributes = append(attributes, ir.Attribute{Key: "sdy.sharding", Value: shardingAttr(tensor.Spec)})
	}
	if tensor.Donated {
		attributes = append(attributes, ir.Attribute{Key: "tf.aliasing_output", Value: ir.Int32(tensor.Result)})
	}
	return attributes
}

// rejectPlaceholders returns an error for a placeholder, which only [Trace.Module] can lower.
func rejectPlaceholders(f *ir.Function) error {
	_, err := ir.Rewrite(f.Body, func(s *ir.Statement) ([]*ir.Statement, error) {
		if s.Placeholder == nil {
			return []*ir.Statement{s}, nil
		}
		return nil, newFault(fmt.Sprintf("placeholder %T", s.Placeholder), "a global program cannot contain it",
			"trace steps with annotations by NewTrace")
	})
	return err
}
