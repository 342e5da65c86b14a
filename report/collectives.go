package report

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Collective contains the total count and bytes of the collectives of one kind over one axis.
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

// CollectiveDType contains the part of a [Collective] with operands of one dtype.
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

func countCollectives(p *hlo.Program, mesh sharding.Mesh) *collectiveCounter {
	c := &collectiveCounter{mesh: mesh, byKey: map[collectiveKey]*Collective{}, byDType: map[dtypeKey]*CollectiveDType{},
		byLine: map[lineKey]*Collective{}, traffic: map[trafficKey]*cost.GroupTraffic{}}
	c.walk(p.Entry, nil, 1, false, 0)
	return c
}

func (c *collectiveCounter) collectives() []Collective {
	var all []Collective
	for _, one := range c.byKey {
		all = append(all, *one)
	}
	sortCollectives(all)
	return all
}

func sortCollectives(all []Collective) {
	slices.SortFunc(all, func(a, b Collective) int {
		return cmp.Or(cmp.Compare(b.Moved, a.Moved), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Axis, b.Axis), cmp.Compare(a.GroupSize, b.GroupSize))
	})
}

func (c *collectiveCounter) dtypes() []CollectiveDType {
	var all []CollectiveDType
	for key, one := range c.byDType {
		one.Kind, one.Axis, one.GroupSize, one.DType = key.kind, key.axis, key.size, cmp.Or(key.dtype, "unknown")
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

func (c Collective) key() collectiveKey { return collectiveKey{c.Kind, c.Axis, c.GroupSize} }

type lineKey struct {
	collectiveKey
	origin *ir.Origin
}

type dtypeKey struct {
	collectiveKey
	dtype string
}

// trafficKey identifies the collectives of one kind over the same groups of partitions. first is
// the first of these groups, formatted as text.
type trafficKey struct{ axis, kind, first string }

// collectiveCounter counts the collectives of a program in execution order.
type collectiveCounter struct {
	mesh    sharding.Mesh // the axes of the replicas and of the logical devices
	byKey   map[collectiveKey]*Collective
	byDType map[dtypeKey]*CollectiveDType
	byLine  map[lineKey]*Collective // empty if the origins are unknown
	traffic map[trafficKey]*cost.GroupTraffic
	steps   int
}

// maxSteps and maxDepth bound the walk of a malformed program with recursive calls. maxCount bounds
// counts so that their products do not overflow.
const maxSteps, maxDepth, maxCount = 1 << 22, 64, 1 << 40

// walk counts the collectives of a computation that runs the given number of times. caller is the
// instruction that calls the computation. unknown is true within a loop whose number of iterations
// is unknown.
func (c *collectiveCounter) walk(computation *hlo.Computation, caller *hlo.Instruction, times int, unknown bool,
	depth int) {
	if computation == nil || depth > maxDepth || times == 0 {
		return
	}
	for _, i := range computation.Instructions {
		if c.steps++; c.steps > maxSteps {
			return
		}
		if i.Collective != "" {
			if i.Collective != "send" || !i.Host || i.BetweenSlices {
				c.add(i, caller, times, unknown)
			}
			continue // the called computation combines elements
		}
		switch i.Opcode {
		case "async-update", "async-done":
			continue // counted at its start
		case "while":
			n := i.Iterations
			if !i.HasIterations {
				n = 1
			}
			for _, called := range i.Called {
				c.walk(called, i, product64(times, n), unknown || !i.HasIterations, depth+1)
			}
		default:
			for _, called := range i.Called {
				c.walk(called, i, times, unknown, depth+1)
			}
		}
	}
}

// add counts collective i, which runs the given number of times. caller is the instruction that
// calls the computation of i.
func (c *collectiveCounter) add(i, caller *hlo.Instruction, times int, unknown bool) {
	kind := i.Collective
	var bytes int64
	byDType := map[string]int64{}
	for _, o := range i.Operands {
		if o != nil {
			bytes += o.Bytes
			for _, a := range o.Arrays {
				byDType[a.DType] += a.Bytes
			}
		}
	}
	axis, size := "", 2
	groups := i.Groups
	switch {
	case kind == "send":
		if i.BetweenSlices {
			axis = "slices"
		}
	case kind == "collective-permute":
		groups = make([][]int, len(i.Pairs))
		for k, pair := range i.Pairs {
			groups[k] = pair[:]
		}
		axis = c.axis(groups)
	case i.UnknownGroups && len(i.Groups) == 0:
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
		moved = 2 * ringShare(bytes, n)
	case "all-gather":
		moved = product64(bytes, n-1)
	case "reduce-scatter", "all-to-all":
		moved = ringShare(bytes, n)
	}
	if len(groups) > 0 {
		key := trafficKey{axis, kind, encodeGroup(groups[0])}
		if c.traffic[key] == nil {
			c.traffic[key] = &cost.GroupTraffic{Kind: kind, Axis: axis, Groups: groups}
		}
		c.traffic[key].Bytes += float64(bytes) * float64(times)
	}
	key := collectiveKey{kind, axis, size}
	if c.byKey[key] == nil {
		c.byKey[key] = &Collective{Kind: kind, Axis: axis, GroupSize: size}
	}
	c.byKey[key].add(times, bytes, moved, unknown)
	for origin, weight := range c.origins(i, caller) {
		at := lineKey{key, origin}
		if c.byLine[at] == nil {
			c.byLine[at] = &Collective{Kind: kind, Axis: axis, GroupSize: size}
		}
		c.byLine[at].add(times, int64(weight*float64(bytes)), int64(weight*float64(moved)), unknown)
	}
	for dtype, bytes := range byDType {
		key := dtypeKey{key, dtype}
		if c.byDType[key] == nil {
			c.byDType[key] = &CollectiveDType{}
		}
		c.byDType[key].Bytes = sum64(c.byDType[key].Bytes, product64(int64(times), bytes))
		c.byDType[key].Count = min(c.byDType[key].Count+times, maxCount)
	}
}

// origins returns the share of each origin in collective i. If part of i has no origin, its share
// is divided among the origins of caller, which is the fusion that contains i.
func (c *collectiveCounter) origins(i, caller *hlo.Instruction) map[*ir.Origin]float64 {
	weights := map[*ir.Origin]float64{}
	for _, p := range i.Parts {
		if p.Origin != nil || caller == nil || caller.Opcode == "while" {
			weights[p.Origin] += p.Weight
			continue
		}
		for _, q := range caller.Parts {
			weights[q.Origin] += p.Weight * q.Weight
		}
	}
	return weights
}

func (c *collectiveCounter) groupTraffic() (all []cost.GroupTraffic) {
	for _, x := range c.traffic {
		all = append(all, *x)
	}
	return all
}

// add adds a collective that runs the given number of times. unknown is true if the number is
// uncertain.
func (one *Collective) add(times int, bytes, moved int64, unknown bool) {
	one.join(Collective{Count: times, Bytes: product64(int64(times), bytes), Moved: product64(int64(times), moved),
		InLoop: unknown})
}

func (one *Collective) join(c Collective) {
	one.Count = min(one.Count+c.Count, maxCount)
	one.Bytes, one.Moved = sum64(one.Bytes, c.Bytes), sum64(one.Moved, c.Moved)
	one.InLoop = one.InLoop || c.InLoop
}

func ringShare(bytes, n int64) int64 { return min(product64(bytes, n-1)/n, maxFigure/2) }

// product64 multiplies nonnegative figures. The result is limited, so that a malformed program
// cannot cause an overflow.
func product64[T int | int64](a, b T) T {
	if b > 0 && a > maxFigure/b {
		return maxFigure
	}
	return a * b
}

func sum64(a, b int64) int64 { return min(a, maxFigure) + min(b, maxFigure) }

const maxFigure = 1 << 61

// encodeGroup returns a string that is different for each group of devices.
func encodeGroup(group []int) string {
	b := make([]byte, 0, 2*len(group))
	for _, device := range group {
		b = binary.AppendUvarint(b, uint64(device))
	}
	return string(b)
}

// axis returns the names of the mesh axes along which the partitions of a group differ.
func (c *collectiveCounter) axis(groups [][]int) string {
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
