package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// plan assigns each box of each variable to the host that saves it. It is the same on every host.
type plan struct {
	values  []shardedValue
	names   []string // tensor names of the variables
	regions []plannedRegion
}

// plannedRegion is a box of a variable and the device from which it is saved.
type plannedRegion struct {
	variable    int
	start, size []int
	bytes       int64
	host        int
	// replica and device identify a device of the host that has the box. placed is false for a
	// variable that is saved by its value instead.
	placed          bool
	replica, device int
}

// planOf plans the save of a group by the given number of hosts. If several hosts have a box, the
// host with the fewest bytes so far saves it.
func planOf(ctx context.Context, g Group, s *strategy.TPUStrategy, hosts int) (*plan, error) {
	p := &plan{}
	if err := p.describe(g); err != nil {
		return nil, err
	}
	load := make([]int64, hosts)
	for i, v := range g.Variables {
		placed, ok := inParts(v)
		if of := strategyOf(v); hosts > 1 && of != nil && of != s {
			return nil, faultOf(v.Path(), "it belongs to another strategy than the manager's", "save it with a manager of its own strategy", nil)
		}
		if !ok || s != nil && placed.Strategy() != s {
			if n := int64(v.Shape().ByteSize()); n > 0 {
				rank := v.Shape().Rank()
				p.regions = append(p.regions, plannedRegion{variable: i, start: make([]int, rank), size: slices.Clone(v.Shape().Dimensions), bytes: n})
				load[0] += n
			}
			continue
		}
		if err := placed.Ready(ctx); err != nil { // initializes a variable without a value
			return nil, faultOf(v.Path(), "not read", "", err)
		}
		p.regions = append(p.regions, boxesOf(i, placed, load)...)
	}
	return p, nil
}

// describe adds the group's variables and their tensor names.
func (p *plan) describe(g Group) error {
	paths, names := map[string]bool{}, map[string]bool{}
	var errs []error
	for i, v := range g.Variables {
		if v == nil {
			return nilVariable("save", i)
		}
		path := v.Path()
		if paths[path] || strings.TrimPrefix(path, "/") == "" {
			errs = append(errs, faultOf(path, "the path is empty, or there twice", "give each variable a path of its own", nil))
			continue
		}
		paths[path] = true
		synchronization, aggregation, err := rules(v)
		errs = append(errs, err)
		spec, err := specOf(path, tensorName(path, names), v.Shape())
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

// tensorName returns the name of a variable's tensor: its path without the first slash. A variable
// of the scope and one of the store may have the same name, as in "global_step" and "/global_step":
// the later one's tensor is "global_step_2".
func tensorName(path string, names map[string]bool) string {
	first := strings.TrimPrefix(path, "/")
	name := first
	for n := 2; names[name]; n++ {
		name = fmt.Sprintf("%s_%d", first, n)
	}
	names[name] = true
	return name
}

// boxesOf assigns the boxes of a variable to hosts that have them.
func boxesOf(i int, v *strategy.Variable, load []int64) (all []plannedRegion) {
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
			if shard.Process < len(load) && load[shard.Process] < load[best.Process] {
				best = shard
			}
		}
		n := element
		for _, d := range best.Size {
			n *= int64(d)
		}
		load[best.Process] += n
		all = append(all, plannedRegion{variable: i, start: best.Start, size: best.Size, bytes: n, host: best.Process,
			placed: true, replica: best.Replica, device: best.LogicalDevice})
	}
	return all
}

// tensorName returns the name of a region in its host's tensor file: the variable's name, followed
// by index ranges if the region is not the whole variable, as in "dense/weights[0:4,8:16]".
func (p *plan) tensorName(r plannedRegion) string {
	name, whole := p.names[r.variable], true
	ranges := make([]string, len(r.size))
	for d, n := range r.size {
		whole = whole && n == p.values[r.variable].Shape[d]
		ranges[d] = fmt.Sprintf("%d:%d", r.start[d], r.start[d]+n)
	}
	if whole {
		return name
	}
	return fmt.Sprintf("%s[%s]", name, strings.Join(ranges, ","))
}
