package strategy

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy/internal/wire"
)

// A step file may say anything. What the strategy relies on is held against what follows
// from the rest of the header, and against the program itself.

// maxElements bounds a tensor of a step file, over any memory.
const maxElements = 1 << 50

// checkShape holds a tensor's shapes against each other.
func (h stepHeader) checkShape(mesh sharding.Mesh, p module.Placed) error {
	for _, dims := range [][]int{p.Local, p.Global, p.Shard} {
		elements := 1
		for _, d := range dims {
			if d < 0 || d > 0 && elements > maxElements/d {
				return fmt.Errorf("tensor %q has the dimensions %v", p.Name, dims)
			}
			elements *= d
		}
	}
	if p.Result < 0 {
		return fmt.Errorf("tensor %q is for result %d", p.Name, p.Result)
	}
	global := slices.Clone(p.Local)
	if p.PerReplica {
		if len(global) == 0 {
			global = []int{1}
		}
		global[0] *= len(h.IDs)
	}
	if p.PerStep {
		global = append([]int{h.Steps}, global...)
	}
	if !slices.Equal(global, p.Global) {
		return fmt.Errorf("tensor %q is %v in a replica and %v in all, not %v", p.Name, p.Local, p.Global, global)
	}
	shard, err := sharding.ShardShape(mesh, p.Spec, p.Global)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	if !slices.Equal(shard, p.Shard) {
		return fmt.Errorf("tensor %q has the part %v on a device, not %v", p.Name, p.Shard, shard)
	}
	if len(h.IDs) > 0 {
		if err := p.Annotation.Validate(p.Name, p.Local, len(h.IDs[0])); err != nil {
			return err
		}
	}
	return nil
}

// checkResults holds what results are said to be against what a step's results can be.
func (h stepHeader) checkResults() error {
	own := len(h.Results) - len(h.Updates)
	for i, r := range h.Results {
		switch {
		case r.Variable, r.Distributed != nil, r.PerStep, r.Donated, r.Ragged:
			return fmt.Errorf("result %d is said to be what only an argument can be", i)
		case h.Mirrored && i < own && r.PerReplica:
			return fmt.Errorf("result %d is of each replica, and the step's are the same on all", i)
		}
	}
	if h.Training && h.Mirrored && own < 1 {
		return fmt.Errorf("a training step without a loss")
	}
	return nil
}

// checkProgram holds the arguments and results of a step against those of its program.
func checkProgram(x *pjrt.LoadedExecutable, m *module.Module) error {
	compare := func(what string, placed []module.Placed, types []pjrt.TensorType) error {
		if len(placed) != len(types) {
			return fmt.Errorf("the file says %d %ss, the program has %d", len(placed), what, len(types))
		}
		for i, p := range placed {
			wire, err := wire.Of(p.DType)
			if err != nil {
				return err
			}
			if wire != types[i].DType || !slices.Equal(p.Shard, types[i].Dims) {
				return fmt.Errorf("%s %d, %q, is %v%v in the file and %v%v in the program", what, i, p.Name, wire, p.Shard, types[i].DType, types[i].Dims)
			}
		}
		return nil
	}
	if err := compare("result", m.Results, x.Outputs()); err != nil {
		return err
	}
	if params, known := x.Parameters(); known {
		return compare("argument", m.Arguments, params)
	}
	return nil
}
