package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// savePlan assigns each region of each variable to the process that saves it. All processes compute
// the same plan.
type savePlan struct {
	values  []shardedValue
	names   []string // tensor names of the variables
	regions []plannedRegion
}

// plannedRegion is a slice of a variable, and the device from which the slice is saved.
type plannedRegion struct {
	variable    int // index in the group
	start, size []int
	bytes       int64
	host        int
	// replica and device identify a device of the host that has the region. onDevice is false for a
	// variable that is saved by its value instead.
	onDevice        bool
	replica, device int
}

// newPlan decides which process saves which region of a group's variables. If several processes
// have a region, it selects the process with the fewest bytes so far.
func newPlan(ctx context.Context, g Group, s *strategy.TPUStrategy, hosts int) (*savePlan, error) {
	p := &savePlan{}
	if err := p.addVariables(g); err != nil {
		return nil, err
	}
	hostBytes := make([]int64, hosts)
	for i, v := range g.Variables {
		placed, ok := asShardedVariable(v)
		if owner := strategyOf(v); hosts > 1 && owner != nil && owner != s {
			return nil, variableError(v.Path(), "it does not belong to the manager's strategy",
				"save it with a manager of that strategy", nil)
		}
		if !ok || s != nil && placed.Strategy() != s {
			if n := int64(v.Shape().ByteSize()); n > 0 {
				rank := v.Shape().Rank()
				p.regions = append(p.regions, plannedRegion{variable: i, start: make([]int, rank),
					size: slices.Clone(v.Shape().Dimensions), bytes: n})
				hostBytes[0] += n
			}
			continue
		}
		if err := placed.Ready(ctx); err != nil { // initializes a variable without a value
			return nil, variableError(v.Path(), "not read", "", err)
		}
		p.regions = append(p.regions, assignRegions(i, placed, hostBytes)...)
	}
	return p, nil
}

// addVariables adds the group's variables to the plan and selects a tensor name for each.
func (p *savePlan) addVariables(g Group) error {
	paths, names := map[string]bool{}, map[string]bool{}
	var errs []error
	for i, v := range g.Variables {
		if v == nil {
			return nilVariableError("save", i)
		}
		path := v.Path()
		if paths[path] || strings.TrimPrefix(path, "/") == "" {
			errs = append(errs, variableError(path, "the path is empty, or occurs twice", "give each variable its own path",
				nil))
			continue
		}
		paths[path] = true
		synchronization, aggregation, err := combineRules(v)
		errs = append(errs, err)
		spec, err := tensorSpec(path, tensorName(path, names), v.Shape())
		errs = append(errs, err)
		value := shardedValue{Path: path, DType: spec.DType, Shape: append([]int{}, spec.Shape...), Trainable: true,
			Synchronization: synchronization.String(), Aggregation: aggregation.String()}
		if t, ok := v.(interface{ Trainable() bool }); ok {
			value.Trainable = t.Trainable()
		}
		p.names, p.values = append(p.names, spec.Name), append(p.values, value)
	}
	return errors.Join(errs...)
}

// tensorName returns the name of a variable's tensor: the variable's path without the first slash.
// If names already contains this name, as for "global_step" and "/global_step", the result is
// "global_step_2".
func tensorName(path string, names map[string]bool) string {
	base := strings.TrimPrefix(path, "/")
	name := base
	for n := 2; names[name]; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	names[name] = true
	return name
}

// assignRegions assigns each region of variable i to a process that has the region. hostBytes has
// the number of bytes that are already assigned to each process.
func assignRegions(i int, v *strategy.Variable, hostBytes []int64) (regions []plannedRegion) {
	element := int64(v.Shape().ByteSize()) / int64(v.Shape().Size())
	byBox := map[string][]strategy.Shard{}
	var order []string
	for _, shard := range v.Shards() {
		if slices.Contains(shard.Size, 0) {
			continue // only padding
		}
		key := fmt.Sprint(shard.Start, shard.Size)
		if byBox[key] == nil {
			order = append(order, key)
		}
		byBox[key] = append(byBox[key], shard)
	}
	for _, key := range order {
		best := byBox[key][0]
		for _, shard := range byBox[key] {
			if shard.Process < len(hostBytes) && hostBytes[shard.Process] < hostBytes[best.Process] {
				best = shard
			}
		}
		n := element
		for _, d := range best.Size {
			n *= int64(d)
		}
		hostBytes[best.Process] += n
		regions = append(regions, plannedRegion{variable: i, start: best.Start, size: best.Size, bytes: n, host: best.Process,
			onDevice: true, replica: best.Replica, device: best.LogicalDevice})
	}
	return regions
}

// tensorName returns the name of a region in the tensor file of its process. This is the variable's
// name, followed by index ranges if the region is not the complete variable, as in
// "dense/weights[0:4,8:16]".
func (p *savePlan) tensorName(r plannedRegion) string {
	name, isComplete := p.names[r.variable], true
	ranges := make([]string, len(r.size))
	for d, n := range r.size {
		isComplete = isComplete && n == p.values[r.variable].Shape[d]
		ranges[d] = fmt.Sprintf("%d:%d", r.start[d], r.start[d]+n)
	}
	if isComplete {
		return name
	}
	return fmt.Sprintf("%s[%s]", name, strings.Join(ranges, ","))
}
