package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Collective is the sum of the collectives of one kind over one axis.
type Collective struct {
	// Kind is the op's name: all-reduce, all-gather, reduce-scatter, all-to-all,
	// collective-permute, collective-broadcast, or send over the data-center network.
	Kind string `json:"kind"`
	// Axis is the set of cores that a collective connects: "replica" for the same logical device of
	// several replicas, "logical" for the logical devices of one replica, "replica+logical" for
	// both. For a step with named logical axes it contains the names of the axes, as "model" or
	// "replica+model". It is "slices" for a send to another slice, to which the compiler lowers
	// collectives over several slices. It is "unknown" if this package does not support the format
	// of the groups in the program; the groups then count as pairs.
	Axis string `json:"axis"`
	// GroupSize is the number of cores that one collective connects.
	GroupSize int `json:"group_size"`
	// Count is the number of these collectives that one core starts in a step. A collective of
	// several tensors counts once.
	Count int `json:"count"`
	// Bytes is the size of all their operands on one core, over the whole step.
	Bytes int64 `json:"bytes"`
	// Moved is the number of bytes that one core sends in a step if each group is a ring, which is
	// the minimum for the collectives.
	Moved int64 `json:"moved_bytes"`
	// InLoop is true if some of the collectives are in a loop with an unknown number of iterations.
	// These count as one iteration.
	InLoop bool `json:"unknown_rounds,omitempty"`
}

// CollectiveDType is the share of a [Collective] with operands of one dtype.
type CollectiveDType struct {
	// Kind, Axis and GroupSize are equal to the fields of the [Collective].
	Kind      string `json:"kind"`
	Axis      string `json:"axis"`
	GroupSize int    `json:"group_size"`
	// DType is the XLA name of the element type, such as "f32" or "bf16".
	DType string `json:"dtype"`
	// Bytes is the size of all these operands on one core, over the whole step.
	Bytes int64 `json:"bytes"`
	// Count is the number of these collectives that one core starts in a step and that have
	// operands of this dtype. It is 0 in reports of earlier versions, which did not count it.
	Count int `json:"count,omitempty"`
}

// collectiveKinds are the ops that move data between cores, by op name including the names of
// asynchronous starts.
var collectiveKinds = map[string]string{
	"all-reduce": "all-reduce", "all-reduce-start": "all-reduce",
	"all-gather": "all-gather", "all-gather-start": "all-gather",
	"reduce-scatter": "reduce-scatter",
	"all-to-all":     "all-to-all", "ragged-all-to-all": "all-to-all",
	"collective-permute": "collective-permute", "collective-permute-start": "collective-permute",
	"collective-broadcast": "collective-broadcast",
	"send":                 "send",
}

// CollectiveKinds returns the possible values of [Collective].Kind in order.
func CollectiveKinds() []string {
	return slices.Compact(slices.Sorted(maps.Values(collectiveKinds)))
}

// counted counts the collectives of a program whose partitions are the devices of a mesh. on may be
// nil.
func (m *hloModule) counted(mesh sharding.Mesh, on *Torus) *counter {
	c := &counter{module: m, mesh: mesh, torus: on, byKey: map[collectiveKey]*Collective{}, byDType: map[dtypeKey]*CollectiveDType{}}
	if m.origins != nil {
		c.byLine = map[lineKey]*Collective{}
	}
	c.walk(m.entry, nil, 1, false, 0)
	m.byLine = c.byLine
	return c
}

// collectives returns the collectives, the most bytes first.
func (c *counter) collectives() []Collective {
	var all []Collective
	for _, one := range c.byKey {
		all = append(all, *one)
	}
	sortCollectives(all)
	return all
}

// sortCollectives sorts by bytes, the most first.
func sortCollectives(all []Collective) {
	slices.SortFunc(all, func(a, b Collective) int {
		return cmp.Or(cmp.Compare(b.Moved, a.Moved), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Axis, b.Axis), cmp.Compare(a.GroupSize, b.GroupSize))
	})
}

// dtypes returns the shares of the collectives by dtype, the most bytes first.
func (c *counter) dtypes() []CollectiveDType {
	var all []CollectiveDType
	for key, one := range c.byDType {
		one.Kind, one.Axis, one.GroupSize, one.DType = key.kind, key.axis, key.size, cmp.Or(elementNames[key.element], "unknown")
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b CollectiveDType) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Axis, b.Axis),
			cmp.Compare(a.GroupSize, b.GroupSize), cmp.Compare(a.DType, b.DType))
	})
	return all
}

type collectiveKey struct {
	kind, axis string
	size       int
}

func (one Collective) key() collectiveKey { return collectiveKey{one.Kind, one.Axis, one.GroupSize} }

// lineKey identifies the collectives of one kind and one origin.
type lineKey struct {
	collectiveKey
	origin *ir.Origin
}

type dtypeKey struct {
	collectiveKey
	element uint64
}

// counter walks a program in execution order.
type counter struct {
	module  *hloModule
	mesh    sharding.Mesh // the axes of the replicas and of the logical devices
	byKey   map[collectiveKey]*Collective
	byDType map[dtypeKey]*CollectiveDType
	byLine  map[lineKey]*Collective // nil if no lines are known
	torus   *Torus                  // the slice of the collectives; nil if unknown
	steps   int
}

// maxSteps bounds the walk of a malformed program with recursive calls.
const maxSteps = 1 << 22

// walk visits the instructions of a computation that instruction by calls and that runs the given
// number of times.
func (c *counter) walk(id uint64, by *hloInstruction, times int, unknown bool, depth int) {
	computation := c.module.computations[id]
	if computation == nil || depth > maxDepth || times == 0 {
		return
	}
	for _, i := range computation.instructions {
		if c.steps++; c.steps > maxSteps {
			return
		}
		if kind, ok := collectiveKinds[i.opcode]; ok {
			if kind != "send" || !i.host || i.slices {
				c.add(kind, computation, i, by, times, unknown)
			}
			continue // the called computation combines elements
		}
		switch i.opcode {
		case "async-update", "async-done":
			continue // counted at its start
		case "while":
			rounds, known := c.module.rounds(computation, i)
			if !known {
				rounds = 1
			}
			for _, called := range i.called {
				c.walk(called, i, product64(times, rounds), unknown || !known, depth+1)
			}
		default:
			for _, called := range i.called {
				c.walk(called, i, times, unknown, depth+1)
			}
		}
	}
}

func (c *counter) add(kind string, computation *hloComputation, i, by *hloInstruction, times int, unknown bool) {
	var bytes int64
	of := map[uint64]int64{}
	for _, id := range i.operands {
		if operand := computation.byID[id]; operand != nil {
			bytes += operand.shape.bytes()
			operand.shape.byElement(of)
		}
	}
	axis, size := "", 2
	groups := i.groups
	switch {
	case kind == "send":
		if i.slices {
			axis = "slices"
		}
	case kind == "collective-permute":
		groups = make([][]int, len(i.pairs))
		for k, pair := range i.pairs {
			groups[k] = pair[:]
		}
		axis = c.axis(groups)
	case i.unreadable && len(i.groups) == 0:
		axis = "unknown"
	default:
		if len(groups) == 0 || len(groups) == 1 && len(groups[0]) == 0 {
			groups = [][]int{make([]int, c.mesh.Size())}
			for k := range groups[0] {
				groups[0][k] = k
			}
		}
		axis, size = c.axis(groups), len(groups[0])
	}
	if axis == "" && kind != "send" {
		return // each group has one core
	}
	n := int64(size)
	moved := bytes
	switch kind {
	case "all-reduce":
		moved = 2 * share(bytes, n)
	case "all-gather":
		moved = product64(bytes, n-1)
	case "reduce-scatter", "all-to-all":
		moved = share(bytes, n)
	}
	if c.torus != nil {
		c.torus.add(kind, axis, groups, float64(bytes)*float64(times))
	}
	key := collectiveKey{kind, axis, size}
	if c.byKey[key] == nil {
		c.byKey[key] = &Collective{Kind: kind, Axis: axis, GroupSize: size}
	}
	c.byKey[key].add(times, bytes, moved, unknown)
	if c.byLine != nil {
		met := map[*ir.Origin]float64{} // a line's share of a collective of several tensors
		for _, p := range i.shares() {
			if p.origin != nil || by == nil || by.opcode == "while" {
				met[p.origin] += p.weight
				continue
			}
			for _, q := range by.shares() { // of a fusion, whose parameters have no names
				met[q.origin] += p.weight * q.weight
			}
		}
		for origin, weight := range met {
			at := lineKey{key, origin}
			if c.byLine[at] == nil {
				c.byLine[at] = &Collective{Kind: kind, Axis: axis, GroupSize: size}
			}
			c.byLine[at].add(times, int64(weight*float64(bytes)), int64(weight*float64(moved)), unknown)
		}
	}
	for element, bytes := range of {
		part := c.byDType[dtypeKey{key, element}]
		if part == nil {
			part = &CollectiveDType{}
			c.byDType[dtypeKey{key, element}] = part
		}
		part.Bytes = sum64(part.Bytes, product64(int64(times), bytes))
		part.Count = min(part.Count+times, maxRounds)
	}
}

// add adds a collective that runs the given number of times.
func (one *Collective) add(times int, bytes, moved int64, unknown bool) {
	one.Count = min(one.Count+times, maxRounds)
	one.Bytes = sum64(one.Bytes, product64(int64(times), bytes))
	one.Moved = sum64(one.Moved, product64(int64(times), moved))
	one.InLoop = one.InLoop || unknown
}

// join adds collectives of the same kind.
func (one *Collective) join(c Collective) {
	one.Count = min(one.Count+c.Count, maxRounds)
	one.Bytes, one.Moved = sum64(one.Bytes, c.Bytes), sum64(one.Moved, c.Moved)
	one.InLoop = one.InLoop || c.InLoop
}

// share returns (n-1)/n of bytes.
func share(bytes, n int64) int64 { return min(product64(bytes, n-1)/n, maxFigure/2) }

// product64 and sum64 multiply and add nonnegative figures. They saturate, so that a malformed
// program cannot cause an overflow.
func product64[T int | int64](a, b T) T {
	if b > 0 && a > maxFigure/b {
		return maxFigure
	}
	return a * b
}

func sum64(a, b int64) int64 { return min(a, maxFigure) + min(b, maxFigure) }

const maxFigure = 1 << 61

// axis returns the axes of the mesh over which the partitions of the groups differ.
func (c *counter) axis(groups [][]int) string {
	axes := c.mesh.Axes()
	differ := make([]bool, len(axes))
	for _, group := range groups {
		for _, partition := range group {
			first, other := group[0], partition
			for i, axis := range slices.Backward(axes) {
				differ[i] = differ[i] || first%axis.Size != other%axis.Size
				first, other = first/axis.Size, other/axis.Size
			}
			if first != other && len(axes) > 0 { // no partition has this number
				differ[0] = true
			}
		}
	}
	var names []string
	for i, axis := range axes {
		if differ[i] {
			names = append(names, axis.Name)
		}
	}
	return strings.Join(names, "+")
}
