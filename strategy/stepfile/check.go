package stepfile

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// The content of a step file is not trusted. The checks in this file compare the fields of the header with
// each other. Package strategy compares the fields with the program.

// maxElements is the maximum number of elements of a tensor. It is larger than any memory.
const maxElements = 1 << 50

// checkShape returns an error if the global and the local shape of a tensor are not consistent.
// mesh is the mesh of all devices, and replica is the logical mesh of one replica.
func (h header) checkShape(mesh, replica sharding.Mesh, p spmd.ShardedTensor) error {
	for _, dims := range [][]int{p.LocalDims, p.GlobalDims, p.ShardDims} {
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
	global := slices.Clone(p.LocalDims)
	if p.PerReplica {
		if len(global) == 0 {
			global = []int{1}
		}
		global[0] *= len(h.IDs)
	}
	if d := p.ReplicaShard.Dim; p.ReplicaShard.IsSharded() {
		if global[d] != p.ReplicaShard.ShardSize(len(h.IDs)) {
			return fmt.Errorf("tensor %q is %v in a replica, and %s over %d", p.Name, p.LocalDims, p.ReplicaShard,
				len(h.IDs))
		}
		global[d] *= len(h.IDs)
	}
	if p.PerStep {
		global = append([]int{h.Steps}, global...)
	}
	if !slices.Equal(global, p.GlobalDims) {
		return fmt.Errorf("tensor %q is %v in a replica and %v in all, not %v", p.Name, p.LocalDims, p.GlobalDims,
			global)
	}
	shard, err := sharding.ShardShape(mesh, p.Spec, p.GlobalDims)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	if !slices.Equal(shard, p.ShardDims) {
		return fmt.Errorf("tensor %q has the part %v on a device, not %v", p.Name, p.ShardDims, shard)
	}
	if len(h.IDs) == 0 {
		return nil
	}
	return p.Annotation.ValidateOn(replica, p.Name, p.LocalDims)
}

// checkResults returns an error if the header describes a result of the step incorrectly.
func (h header) checkResults() error {
	own := len(h.Results) - len(h.Updates)
	for i, r := range h.Results {
		switch {
		case r.Variable, r.Constant, r.Distributed != nil, r.PerStep, r.Donated, r.Ragged:
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

// decodeModule returns the step's module, which consists of the given text and the descriptions in
// the header. It returns an error if the header is not consistent.
func (h header) decodeModule(text []byte) (*spmd.Module, error) {
	mesh, err := sharding.NewMesh(h.Axes...)
	if err != nil {
		return nil, err
	}
	devices := 0
	if len(h.IDs) > 0 {
		devices = len(h.IDs[0])
	}
	replica, err := logical.NewMesh(devices, h.LogicalAxes...)
	if err != nil {
		return nil, err
	}
	m := &spmd.Module{Name: h.Step, Text: text, Mesh: mesh, LogicalMesh: replica, Replicas: max(h.Replicas, 1)}
	if m.Partitions = mesh.Size() / m.Replicas; m.Replicas*m.Partitions != mesh.Size() {
		return nil, fmt.Errorf("%d replicas on %d devices", m.Replicas, mesh.Size())
	}
	for _, list := range []struct {
		from []tensor
		to   *[]spmd.ShardedTensor
	}{{h.Arguments, &m.Arguments}, {h.Results, &m.Results}} {
		for _, t := range list.from {
			placed, err := t.decode()
			if err != nil {
				return nil, err
			}
			if placed.Donated && placed.Result >= len(h.Results) {
				return nil, fmt.Errorf("tensor %q is donated to result %d of %d", t.Name, placed.Result, len(h.Results))
			}
			if err := h.checkShape(mesh, replica, placed); err != nil {
				return nil, err
			}
			*list.to = append(*list.to, placed)
		}
	}
	if err := h.check(m); err != nil {
		return nil, err
	}
	return m, nil
}

// check returns an error if the fields of the header contradict each other or the module m.
func (h header) check(m *spmd.Module) error {
	if len(h.Updates) > len(h.Results) {
		return fmt.Errorf("%d updates among %d results", len(h.Updates), len(h.Results))
	}
	if err := h.checkResults(); err != nil {
		return err
	}
	own := len(h.Results) - len(h.Updates)
	for k, at := range h.Updates {
		if at < 0 || at >= len(h.Arguments) || !h.Arguments[at].Variable || !h.Arguments[at].Donated ||
			h.Arguments[at].Result != own+k {
			return fmt.Errorf("the update of argument %d", at)
		}
	}
	loop := false
	for i, t := range h.Arguments {
		replicated := !t.PerReplica && !t.PerStep && t.Over == nil &&
			m.Arguments[i].Annotation.Kind() == logical.KindNone
		if t.Constant && (!t.Variable || t.Distributed != nil || t.Donated || t.Ragged || !replicated ||
			m.Arguments[i].DType.IsPacked()) {
			return fmt.Errorf("tensor %q is a constant and not only that", t.Name)
		}
		if t.Distributed != nil {
			if !t.Variable {
				return fmt.Errorf("tensor %q is distributed and no variable", t.Name)
			}
			if _, err := t.Distributed.decode(m.Arguments[i]); err != nil {
				return err
			}
		}
		if t.PerStep {
			loop = true
			// checkShape ensures that t.Global begins with them
			if t.Variable || t.Donated || h.Steps < 1 || t.Shard[0] != h.Steps {
				return fmt.Errorf("tensor %q has shape %v for %d steps", t.Name, t.Global, h.Steps)
			}
		}
	}
	if loop != (h.Steps != 0) {
		return fmt.Errorf("%d steps", h.Steps)
	}
	return nil
}

// splitConstants splits the last section of a file into the serialized program and the elements of
// the large constants. The result constants has an entry for each argument, which is nil for an
// argument that is not a constant.
func (h header) splitConstants(m *spmd.Module, part []byte) (code []byte, constants [][]byte, err error) {
	constants = make([][]byte, len(m.Arguments))
	if h.ConstantBytes > uint64(len(part)) {
		return nil, nil, fmt.Errorf("%d bytes of constants among %d", h.ConstantBytes, len(part))
	}
	code = part[:len(part)-int(h.ConstantBytes)]
	rest := part[len(code):]
	for i, a := range m.Arguments {
		if !a.IsConstant {
			continue
		}
		elements := 1
		for _, d := range a.LocalDims {
			elements *= d
		}
		if elements == 0 || a.DType.Size() == 0 || elements > len(rest)/a.DType.Size() {
			return nil, nil, fmt.Errorf("tensor %q of %s%v has %d bytes in the file", a.Name, a.DType, a.LocalDims,
				len(rest))
		}
		size := elements * a.DType.Size()
		constants[i], rest = rest[:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, nil, fmt.Errorf("%d bytes that belong to no constant", len(rest))
	}
	return code, constants, nil
}
