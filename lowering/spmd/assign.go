package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// An assigned tensor is computed on one device. The op that computes it, and preceding ops that
// only this op needs, become a region of that device, as if the step had called logical.OnDevice.
// The annotation itself adds no op. No region is needed for a tensor that is already replicated on
// all devices, such as an argument or the result of a collective.
//
// In a gradient, the annotation applies to the adjoint of the tensor. The ops that read the adjoint
// then run on the device: the backward pass of the ops that ran there.

// placement selects the device of each statement of a step.
type placement struct {
	assembler *assembler
	flow      *dataFlow
	// device contains the device that runs a statement alone, or allDevices, or inRegion for
	// statements of logical.OnDevice regions.
	device []int
	// sharded contains the values that may be sharded over devices.
	sharded valueSet
	readers [][]int
	// adjoints contains, for each device, the adjoints assigned to it and the values computed from
	// them there. onDevice contains the values that only this device computes or reads.
	adjoints, onDevice map[int]valueSet
}

type valueSet map[*ir.Value]bool

const (
	allDevices = -1
	inRegion   = -2
)

// layoutOps lists ops that only move elements. If all devices have the operand, running the op on
// all of them costs less than sending the result.
var layoutOps = []string{"stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim", "stablehlo.slice",
	"stablehlo.reverse",
	"stablehlo.convert", "stablehlo.iota", "stablehlo.constant", "stablehlo.pad", "stablehlo.concatenate"}

// allDeviceOps lists ops that all devices of a replica must run: random generators, whose state the
// step stores, and ops that may contain a collective.
var allDeviceOps = []string{"stablehlo.rng_bit_generator", "stablehlo.rng", "stablehlo.custom_call",
	"stablehlo.all_reduce",
	"stablehlo.all_gather", "stablehlo.reduce_scatter", "stablehlo.all_to_all", "stablehlo.collective_permute",
	"stablehlo.collective_broadcast", "stablehlo.partition_id", "stablehlo.replica_id", "stablehlo.return",
	"sdy.manual_computation"}

// placeStatements selects the device of each statement. If an annotation assigns a tensor to a
// device, its result becomes an alias of the tensor.
func (w *assembler) placeStatements(fl *dataFlow, step *lowering.Program, arguments []ShardedTensor) *placement {
	p := &placement{assembler: w, flow: fl, device: make([]int, len(fl.statements)), sharded: valueSet{},
		readers: make([][]int, len(fl.statements)), adjoints: map[int]valueSet{}, onDevice: map[int]valueSet{}}
	next := 0
	for i, v := range step.Main().Parameters {
		if step.ParameterNames[i] != ReplicaIDName {
			p.sharded[v.Value] = arguments[next].Annotation.IsSharded(w.trace.mesh)
			next++
		}
	}
	for i := range fl.statements {
		p.device[i] = allDevices
		if fl.regionOf[i] >= 0 {
			p.device[i] = inRegion
		}
		p.propagateProperties(i)
	}
	if len(p.onDevice) == 0 {
		return p // no tensor is assigned
	}
	for i := range fl.statements {
		for _, v := range fl.uses[i] {
			if from, ok := fl.defined[v]; ok && !slices.Contains(p.readers[from], i) {
				p.readers[from] = append(p.readers[from], i)
			}
		}
	}
	for p.assignMore() {
	}
	return p
}

// propagateProperties records whether the results of statement i may be sharded. If the statement
// is an annotation that assigns a tensor to a device, propagateProperties calls assignValue.
func (p *placement) propagateProperties(i int) {
	fl, s := p.flow, p.flow.statements[i]
	split := false
	for k, v := range fl.uses[i] {
		if of, ok := fl.aliases[v]; ok {
			fl.uses[i][k] = of
		}
		split = split || p.sharded[fl.uses[i][k]]
	}
	if a, ok := s.Placeholder.(annotationPlaceholder); ok {
		device, assigned := a.assignedDevice()
		switch {
		case assigned:
			p.assignValue(fl.uses[i][0], s.Results[0], device, a.isAdjoint, split)
			return
		case a.annotation.IsSharded(p.assembler.trace.mesh):
			split = true
		case a.annotation.Kind() == logical.KindReplicate, a.annotation.Kind() == logical.KindSplit:
			split = false // split over no axis
		}
	}
	for _, v := range s.Results {
		p.sharded[v] = split && v.Type.Rank() > 0
	}
}

// assignValue assigns a tensor to a device, as an annotation requests. operand is the annotated
// tensor, and result is the result of the annotation.
func (p *placement) assignValue(operand, result *ir.Value, device int, isAdjoint, isSharded bool) {
	if !isSharded {
		p.flow.aliases[result] = operand
		result = operand
	}
	if p.onDevice[device] == nil {
		p.onDevice[device], p.adjoints[device] = valueSet{}, valueSet{}
	}
	if isAdjoint {
		p.adjoints[device][result] = true
	} else if !isSharded {
		p.assignProducer(operand, device)
	}
}

// assignProducer assigns the statement that defines v to a device if possible. It reports whether
// the statement runs on this device.
func (p *placement) assignProducer(v *ir.Value, device int) bool {
	i, ok := p.flow.defined[v]
	if !ok || p.device[i] != allDevices || !p.canRunOnOneDevice(i) {
		return ok && p.device[i] == device
	}
	if s := p.flow.statements[i]; slices.Contains(layoutOps, s.Op) {
		moved := false
		for _, operand := range p.flow.uses[i] {
			moved = p.assignProducer(operand, device) || moved
		}
		if !moved {
			return false
		}
	}
	p.assignStatement(i, device)
	return true
}

func (p *placement) assignStatement(i, device int) {
	p.device[i] = device
	for _, v := range p.flow.uses[i] {
		p.onDevice[device][v] = true
	}
	for _, v := range p.flow.statements[i].Results {
		p.onDevice[device][v] = true
	}
}

// canRunOnOneDevice reports whether a single device can run a statement.
func (p *placement) canRunOnOneDevice(i int) bool {
	s := p.flow.statements[i]
	if s.Placeholder != nil || len(s.Results) == 0 || slices.Contains(allDeviceOps, s.Op) {
		return false
	}
	if slices.ContainsFunc(s.Results, p.flow.isRepeatable) {
		return false // constants are repeated at their readers
	}
	if slices.ContainsFunc(p.flow.uses[i], func(v *ir.Value) bool { return p.sharded[v] }) {
		return false // each device computes a shard
	}
	return p.assembler.checkSingleDevice([]*ir.Statement{s}) == nil && !slices.ContainsFunc(s.Regions,
		func(r *ir.Region) bool { return p.assembler.containsPlaceholder(r.Body) })
}

// assignMore assigns statements that depend on adjoints of a device, and statements whose results
// only one device reads. It reports whether it assigned a statement.
func (p *placement) assignMore() bool {
	grown := false
	for i := range p.flow.statements {
		if p.device[i] != allDevices || len(p.flow.uses[i]) == 0 {
			continue
		}
		for k := range p.assembler.logicalDevices {
			if p.onDevice[k] != nil && p.isBackward(i, k) && p.canRunOnOneDevice(i) {
				p.assignStatement(i, k)
				for _, v := range p.flow.statements[i].Results {
					p.adjoints[k][v] = true
				}
				grown = true
				break
			}
		}
	}
	for i := range slices.Backward(p.flow.statements) {
		if p.device[i] != allDevices || len(p.readers[i]) == 0 {
			continue
		}
		k := p.device[p.readers[i][0]]
		if k < 0 || slices.ContainsFunc(p.readers[i], func(reader int) bool { return p.device[reader] != k }) ||
			!p.canRunOnOneDevice(i) {
			continue
		}
		p.assignStatement(i, k)
		grown = true
	}
	return grown
}

// isBackward reports whether statement i depends on adjoints that are assigned to a device, and
// otherwise only on values that the device can compute.
func (p *placement) isBackward(i, device int) bool {
	adjoint := func(v *ir.Value) bool { return p.adjoints[device][v] }
	return slices.ContainsFunc(p.flow.uses[i], adjoint) && !slices.ContainsFunc(p.flow.uses[i], func(v *ir.Value) bool {
		return !adjoint(v) && !p.canCompute(v, device, 8)
	})
}

// canCompute reports whether a device has v, or can compute v with at most the given number of ops.
func (p *placement) canCompute(v *ir.Value, device, ops int) bool {
	if p.onDevice[device][v] || p.flow.isRepeatable(v) {
		return true
	}
	i, ok := p.flow.defined[v]
	return ok && ops > 0 && p.device[i] == allDevices && p.canRunOnOneDevice(i) &&
		!slices.ContainsFunc(p.flow.uses[i], func(operand *ir.Value) bool {
			return !p.canCompute(operand, device, ops-1)
		})
}

// addRegions adds regions for the statements that are assigned to one device. Statements of the
// same device without a transfer between them form one region.
func (p *placement) addRegions(regions []deviceRegion) []deviceRegion {
	fl := p.flow
	level := make([]int, len(fl.statements))
	type key struct{ device, level int }
	numbers := map[key]int{}
	levelAfter := func(operand, reader int) int {
		// A transfer from a region to any other unit adds one level.
		switch {
		case p.device[operand] == allDevices, p.device[operand] >= 0 && p.device[operand] == p.device[reader],
			p.device[operand] == inRegion && fl.regionOf[operand] == fl.regionOf[reader]:
			return level[operand]
		}
		return level[operand] + 1
	}
	for i := 0; i < len(fl.statements); i++ {
		end := i + 1
		if p.device[i] == inRegion {
			end = regions[fl.regionOf[i]].statements[len(regions[fl.regionOf[i]].statements)-1] + 1
		}
		unitLevel := 0
		for j := i; j < end; j++ {
			for _, v := range fl.uses[j] {
				if from, ok := fl.defined[v]; ok && from < i && !(fl.isRepeatable(v) &&
					(p.device[from] != allDevices || p.device[i] != allDevices)) {
					unitLevel = max(unitLevel, levelAfter(from, i))
				}
			}
		}
		for ; i < end; i++ {
			level[i] = unitLevel
		}
		i--
		if k := p.device[i]; k >= 0 {
			n, ok := numbers[key{k, unitLevel}]
			if !ok {
				n = len(regions)
				numbers[key{k, unitLevel}] = n
				regions = append(regions, deviceRegion{device: k})
			}
			fl.regionOf[i] = n
			regions[n].statements = append(regions[n].statements, i)
		}
	}
	return regions
}

// unitOrder returns a topological order of the step's regions and other statements. An element is
// the index of a region, or ^i for statement i. Independent elements remain in the order of the
// trace.
func (fl *dataFlow) unitOrder(regions []deviceRegion) []int {
	unitOf := func(i int) int {
		if n := fl.regionOf[i]; n >= 0 {
			return n
		}
		return ^i
	}
	missing, readers := map[int]int{}, map[int][]int{}
	for i := range fl.statements {
		unit := unitOf(i)
		for _, v := range fl.uses[i] {
			from, ok := fl.defined[v]
			if !ok || unitOf(from) == unit || fl.isRepeatable(v) && (unit >= 0 || unitOf(from) >= 0) {
				continue
			}
			missing[unit]++
			readers[unitOf(from)] = append(readers[unitOf(from)], unit)
		}
	}
	first := func(unit int) int {
		if unit < 0 {
			return ^unit
		}
		return regions[unit].statements[0]
	}
	var ready, order []int // ready is sorted in descending order
	insert := func(unit int) {
		at, _ := slices.BinarySearchFunc(ready, first(unit), func(u, target int) int { return target - first(u) })
		ready = slices.Insert(ready, at, unit)
	}
	for i := range fl.statements {
		if unit := unitOf(i); first(unit) == i && missing[unit] == 0 {
			insert(unit)
		}
	}
	for len(ready) > 0 {
		unit := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		order = append(order, unit)
		for _, reader := range readers[unit] {
			if missing[reader]--; missing[reader] == 0 {
				insert(reader)
			}
		}
	}
	return order
}
