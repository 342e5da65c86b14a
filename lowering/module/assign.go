package module

import (
	"slices"

	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/logical"
)

// An assigned tensor is made on its device: the op that makes it, with those before it that only it needs, becomes
// part of a region of that device, as if the step had called logical.On. The annotation itself is then no op: what
// reads it reads the tensor. It is none either where the tensor is whole on all devices already, as an argument is
// or what a collective returns.
//
// The gradient's annotation stands at the adjoint of the tensor. There it is the ops after it that belong to the
// device: those of the backward pass of what the forward pass has there.

// assignment is what the marker of an assigned tensor says.
type assignment struct {
	device int
	// adjoint: the tensor is an adjoint, whose readers are assigned.
	adjoint bool
}

// placement works out the devices of a step's statements.
type placement struct {
	w  *writer
	fl *flow
	// device is where a statement runs alone, or everywhere. Those of On regions are own.
	device []int
	// split values may have other parts on other devices.
	split map[string]bool
	// readers are the statements that read a statement's results.
	readers [][]int
	// adjoints are the adjoints assigned to a device and what is made from them there, held the values that the
	// device makes or reads alone.
	adjoints, held map[int]map[string]bool
}

const (
	everywhere = -1
	own        = -2
)

// layout ops move elements about. Where their operand is on all devices they cost less than sending the result.
var layout = []string{"reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "convert", "iota", "constant", "pad", "concatenate"}

// together lists ops that all devices of a replica run alike: random bits, whose state the step keeps, and what may
// hold a collective.
var together = []string{"rng_bit_generator", "rng", "custom_call", "all_reduce", "all_gather", "reduce_scatter",
	"all_to_all", "collective_permute", "collective_broadcast", "partition_id", "replica_id", "return"}

func opName(s *stablehlo.Statement) string {
	const prefix = "stablehlo."
	name := s.OpType.ToStableHLO()
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return name[len(prefix):]
	}
	return name
}

// locate finds the statements that run on one device, and what annotations are another name for.
func (w *writer) locate(fl *flow, f *stablehlo.Function, names []string, arguments []Placed) *placement {
	p := &placement{w: w, fl: fl, device: make([]int, len(fl.statements)), split: map[string]bool{},
		readers: make([][]int, len(fl.statements)), adjoints: map[int]map[string]bool{}, held: map[int]map[string]bool{}}
	next := 0
	for i, v := range f.Inputs {
		if names[i] != ReplicaIDName {
			p.split[v.String()] = arguments[next].Annotation.Kind() == logical.KindSplit
			next++
		}
	}
	for i := range fl.statements {
		p.device[i] = everywhere
		if fl.regionOf[i] >= 0 {
			p.device[i] = own
		}
		p.follow(i)
	}
	if len(p.held) == 0 {
		return p // nothing is assigned
	}
	for i := range fl.statements {
		for _, name := range fl.uses[i] {
			if from, ok := fl.defined[name]; ok && !slices.Contains(p.readers[from], i) {
				p.readers[from] = append(p.readers[from], i)
			}
		}
	}
	for p.grow() {
	}
	return p
}

// follow passes on what is known of a statement's operands, and pulls what an annotation assigns.
func (p *placement) follow(i int) {
	fl, s := p.fl, p.fl.statements[i]
	split := false
	for k, name := range fl.uses[i] {
		if of, ok := fl.alias[name]; ok {
			fl.uses[i][k] = of
		}
		split = split || p.split[fl.uses[i][k]]
	}
	number, marked := s.Attributes[markerAttribute].(string)
	a, assigned := p.w.trace.assigned[number]
	switch {
	case marked && assigned:
		x, y := fl.uses[i][0], s.Outputs[0].String()
		if !split {
			fl.alias[y] = x
			y = x
		}
		p.deviceOf(a.device)
		if a.adjoint {
			p.adjoints[a.device][y] = true
		} else if !split {
			p.pull(x, a.device)
		}
		return
	case marked && p.w.trace.placed[number] == logical.KindSplit:
		split = true
	case marked && p.w.trace.placed[number] == logical.KindReplicate:
		split = false
	}
	for _, v := range s.Outputs {
		p.split[v.String()] = split && v.Shape().Rank() > 0
	}
}

func (p *placement) deviceOf(k int) {
	if p.held[k] == nil {
		p.held[k], p.adjoints[k] = map[string]bool{}, map[string]bool{}
	}
}

// pull puts the op that makes a value on device k, and reports whether it is there.
func (p *placement) pull(name string, k int) bool {
	i, ok := p.fl.defined[name]
	if !ok || p.device[i] != everywhere || !p.alone(i) {
		return ok && p.device[i] == k
	}
	if s := p.fl.statements[i]; slices.Contains(layout, opName(s)) {
		from := false
		for _, operand := range p.fl.uses[i] {
			from = p.pull(operand, k) || from
		}
		if !from {
			return false
		}
	}
	p.take(i, k)
	return true
}

func (p *placement) take(i, k int) {
	p.device[i] = k
	for _, name := range p.fl.uses[i] {
		p.held[k][name] = true
	}
	for _, v := range p.fl.statements[i].Outputs {
		p.held[k][v.String()] = true
	}
}

// alone reports whether one device can run a statement without the others.
func (p *placement) alone(i int) bool {
	s := p.fl.statements[i]
	if _, marked := s.Attributes[markerAttribute]; marked || len(s.Outputs) == 0 || slices.Contains(together, opName(s)) {
		return false
	}
	for _, v := range s.Outputs {
		if p.fl.constant(v.String()) {
			return false // written where it is read
		}
	}
	for _, name := range p.fl.uses[i] {
		if p.split[name] {
			return false // each device has a part of the work
		}
	}
	return p.w.runsAlone([]*stablehlo.Statement{s}) == nil && !slices.ContainsFunc(s.FunctionParameters, p.w.together)
}

// grow adds what follows from adjoints and what only one device needs, and reports whether there was any.
func (p *placement) grow() bool {
	grown := false
	for i := range p.fl.statements {
		if p.device[i] != everywhere || len(p.fl.uses[i]) == 0 {
			continue
		}
		for k := range p.w.logicalDevices {
			if p.held[k] != nil && p.backward(i, k) && p.alone(i) {
				p.take(i, k)
				for _, v := range p.fl.statements[i].Outputs {
					p.adjoints[k][v.String()] = true
				}
				grown = true
				break
			}
		}
	}
	for i := range slices.Backward(p.fl.statements) {
		if p.device[i] != everywhere || len(p.readers[i]) == 0 {
			continue
		}
		k := p.device[p.readers[i][0]]
		if k < 0 || slices.ContainsFunc(p.readers[i], func(reader int) bool { return p.device[reader] != k }) || !p.alone(i) {
			continue
		}
		p.take(i, k)
		grown = true
	}
	return grown
}

// backward reports whether a statement makes something of the adjoints of device k and of what it has.
func (p *placement) backward(i, k int) bool {
	adjoint := func(name string) bool { return p.adjoints[k][name] }
	return slices.ContainsFunc(p.fl.uses[i], adjoint) && !slices.ContainsFunc(p.fl.uses[i], func(name string) bool {
		return !adjoint(name) && !p.within(name, k, 8)
	})
}

// within reports whether device k has a value or can make it of what it has, in so many ops.
func (p *placement) within(name string, k, ops int) bool {
	if p.held[k][name] || p.fl.constant(name) {
		return true
	}
	i, ok := p.fl.defined[name]
	return ok && ops > 0 && p.device[i] == everywhere && p.alone(i) && !slices.ContainsFunc(p.fl.uses[i], func(operand string) bool {
		return !p.within(operand, k, ops-1)
	})
}

// schedule adds the regions of the statements that are assigned: those of a device between two crossings of its
// border are one.
func (p *placement) schedule(regions []region) []region {
	fl := p.fl
	level := make([]int, len(fl.statements))
	type key struct{ device, level int }
	numbers := map[key]int{}
	crossed := func(operand, reader int) int {
		// From a region to anything but itself one level is crossed.
		switch {
		case p.device[operand] == everywhere, p.device[operand] >= 0 && p.device[operand] == p.device[reader],
			p.device[operand] == own && fl.regionOf[operand] == fl.regionOf[reader]:
			return level[operand]
		}
		return level[operand] + 1
	}
	for i := 0; i < len(fl.statements); i++ {
		end := i + 1
		if p.device[i] == own {
			end = regions[fl.regionOf[i]].statements[len(regions[fl.regionOf[i]].statements)-1] + 1
		}
		at := 0
		for j := i; j < end; j++ {
			for _, name := range fl.uses[j] {
				if from, ok := fl.defined[name]; ok && from < i && !(fl.constant(name) && (p.device[from] != everywhere || p.device[i] != everywhere)) {
					at = max(at, crossed(from, i))
				}
			}
		}
		for ; i < end; i++ {
			level[i] = at
		}
		i--
		if k := p.device[i]; k >= 0 {
			n, ok := numbers[key{k, at}]
			if !ok {
				n = len(regions)
				numbers[key{k, at}] = n
				regions = append(regions, region{device: k})
			}
			fl.regionOf[i] = n
			regions[n].statements = append(regions[n].statements, i)
		}
	}
	return regions
}

// order lists the units of the step, each a region or, as ^i, statement i: operands first and otherwise as they were
// traced.
func (fl *flow) order(regions []region) []int {
	unitOf := func(i int) int {
		if n := fl.regionOf[i]; n >= 0 {
			return n
		}
		return ^i
	}
	missing, readers := map[int]int{}, map[int][]int{}
	for i := range fl.statements {
		unit := unitOf(i)
		for _, name := range fl.uses[i] {
			from, ok := fl.defined[name]
			if !ok || unitOf(from) == unit || fl.constant(name) && (unit >= 0 || unitOf(from) >= 0) {
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
	var ready, order []int // ready is sorted, the first statement last
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
