package plan

import (
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Space is what a search goes through: each plan of it is a choice of one of each.
type Space struct {
	// Slices are the slices, by name, with the number of their devices.
	Slices []Slice
	// Logical are the numbers of logical devices of a replica; nil is each that divides a slice's
	// devices. The replicas take all of them.
	Logical []int
	// Axes are the names of the axes of a replica's devices, which the step or its rules split over; nil is
	// [logical.AxisName]. Of several, each way to cut the logical devices into them is a choice.
	Axes []string
	// Rules are sets of rules for replicas of several logical devices; empty is one without rules.
	Rules []RuleSet
	// States are what the replicas share out; nil is all four.
	States []logical.StateSharding
	// Settings are options of the program, with their values.
	Settings map[string][]string
}

// Slice is a slice and the number of its devices.
type Slice struct {
	Name    string
	Devices int
}

// RuleSet is rules with a name.
type RuleSet struct {
	Name  string
	Rules logical.Rules
}

// KnownRules are none, and those of logical.BuiltinRules for the layers of GoMLX over axes of these names: what
// is tried of a step without rules. No names are [logical.AxisName].
func KnownRules(names []string) ([]RuleSet, error) {
	if len(names) == 0 {
		names = []string{logical.AxisName}
	}
	axes := make([]sharding.Axis, len(names))
	for i, name := range names {
		axes[i] = sharding.Axis{Name: name, Size: 2} // of any size
	}
	mesh, err := sharding.NewMesh(axes...)
	if err != nil {
		return nil, err
	}
	known, err := logical.BuiltinRules("megatron", mesh)
	return []RuleSet{{Name: "none"}, {Name: "megatron", Rules: known}}, err
}

// Plans returns the plans of a space, always in one order. Plans that differ by nothing, such as those of
// one replica that shares its state with nobody, are there once.
func (s Space) Plans() (all []Plan) {
	names := s.Axes
	if len(names) == 0 {
		names = []string{logical.AxisName}
	}
	sets := s.Rules
	if len(sets) == 0 {
		sets = []RuleSet{{}}
	}
	for _, slice := range s.Slices {
		for _, p := range s.logical(slice.Devices) {
			for _, sizes := range factorings(p, len(names)) {
				axes := make([]sharding.Axis, len(names))
				for i, name := range names {
					axes[i] = sharding.Axis{Name: name, Size: sizes[i]}
				}
				for i, set := range sets {
					if p == 1 && i > 0 {
						break // there is nothing to split over
					}
					if p == 1 {
						set = RuleSet{}
					}
					for _, state := range s.states(slice.Devices / p) {
						for _, settings := range s.settings() {
							all = append(all, Plan{Slice: slice.Name, Replicas: slice.Devices / p, Axes: axes, RulesName: set.Name, Rules: sharing(set.Rules, state), Settings: settings})
						}
					}
				}
			}
		}
	}
	return all
}

// sharing returns rules with another state for all variables.
func sharing(rules logical.Rules, state logical.StateSharding) logical.Rules {
	out := slices.DeleteFunc(slices.Clone(rules), func(r logical.Rule) bool { return r.State != 0 })
	if state > logical.ShardNothing {
		share := logical.Share("", state)
		share.Optional = true // of a step without large variables
		out = append(out, share)
	}
	return out
}

func (s Space) logical(devices int) (all []int) {
	for p := 1; p <= devices; p++ {
		if devices%p == 0 && (s.Logical == nil || slices.Contains(s.Logical, p)) {
			all = append(all, p)
		}
	}
	return all
}

func (s Space) states(replicas int) []logical.StateSharding {
	switch {
	case replicas == 1:
		return []logical.StateSharding{logical.ShardNothing}
	case s.States == nil:
		return []logical.StateSharding{logical.ShardNothing, logical.ShardOptimizer, logical.ShardGradients, logical.ShardParameters}
	}
	return s.States
}

// settings are the choices of the program's options.
func (s Space) settings() []map[string]string {
	all := []map[string]string{nil}
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		var more []map[string]string
		for _, chosen := range all {
			for _, value := range s.Settings[name] {
				with := map[string]string{name: value}
				maps.Copy(with, chosen)
				more = append(more, with)
			}
		}
		all = more
	}
	return all
}

// factorings are the ways to write n as a product of so many numbers.
func factorings(n, parts int) (all [][]int) {
	if parts == 1 {
		return [][]int{{n}}
	}
	for f := 1; f <= n; f++ {
		if n%f != 0 {
			continue
		}
		for _, rest := range factorings(n/f, parts-1) {
			all = append(all, append([]int{f}, rest...))
		}
	}
	return all
}
