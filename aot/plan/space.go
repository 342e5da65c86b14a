package plan

import (
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Space is a search space that contains all combinations of the values of its fields.
type Space struct {
	// Slices are the slices with their number of devices.
	Slices []Slice
	// Logical are the numbers of logical devices of a replica; nil means all divisors of a slice's
	// number of devices. The replicas use all devices of the slice.
	Logical []int
	// Axes are the names of the axes of the logical devices over which the step or its rules shard;
	// nil means [logical.LogicalAxis]. With several axes, every factorization of the number of logical
	// devices is tried.
	Axes []string
	// Rules are sets of rules for replicas with several logical devices; empty means one set
	// without rules.
	Rules []RuleSet
	// States are the shardings of the training state over the replicas; nil means all four.
	States []logical.StateSharding
	// Settings are options of the program with the values to try.
	Settings map[string][]string
}

// Slice is a TPU slice and its number of devices.
type Slice struct {
	Name    string
	Devices int
}

// RuleSet is a named set of sharding rules.
type RuleSet struct {
	Name  string
	Rules logical.Rules
}

// KnownRules returns the rule sets to try for a step without rules: an empty set, and the
// "megatron" set of logical.BuiltinRules, which shards GoMLX layers over the mesh axes with these
// names. Without names it uses [logical.LogicalAxis].
func KnownRules(names []string) ([]RuleSet, error) {
	if len(names) == 0 {
		names = []string{logical.LogicalAxis}
	}
	axes := make([]sharding.Axis, len(names))
	for i, name := range names {
		axes[i] = sharding.Axis{Name: name, Size: 2} // the size does not matter
	}
	mesh, err := sharding.NewMesh(axes...)
	if err != nil {
		return nil, err
	}
	known, err := logical.BuiltinRules("megatron", mesh)
	return []RuleSet{{Name: "none"}, {Name: "megatron", Rules: known}}, err
}

// Plans returns the plans of the space, in a deterministic order. It omits duplicates, such as
// plans of a single replica that differ only in the state sharding.
func (s Space) Plans() (plans []Plan) {
	names := s.Axes
	if len(names) == 0 {
		names = []string{logical.LogicalAxis}
	}
	sets := s.Rules
	if len(sets) == 0 {
		sets = []RuleSet{{}}
	}
	for _, slice := range s.Slices {
		for _, p := range s.logicalSizes(slice.Devices) {
			for _, sizes := range factorizations(p, len(names)) {
				axes := make([]sharding.Axis, len(names))
				for i, name := range names {
					axes[i] = sharding.Axis{Name: name, Size: sizes[i]}
				}
				for i, set := range sets {
					if p == 1 && i > 0 {
						break // one device has nothing to shard
					}
					if p == 1 {
						set = RuleSet{}
					}
					for _, state := range s.stateShardings(slice.Devices / p) {
						for _, settings := range s.settingCombinations() {
							plans = append(plans, Plan{Slice: slice.Name, Replicas: slice.Devices / p, Axes: axes, RulesName: set.Name,
								Rules: withStateSharding(set.Rules, state), Settings: settings})
						}
					}
				}
			}
		}
	}
	return plans
}

// withStateSharding returns rules that shard the training state of all variables as specified.
func withStateSharding(rules logical.Rules, state logical.StateSharding) logical.Rules {
	out := slices.DeleteFunc(slices.Clone(rules), func(r logical.Rule) bool { return r.State != 0 })
	if state.Parts() != 0 {
		rule := logical.MatchState("", state)
		rule.Optional = true // the step may have no large variables
		out = append(out, rule)
	}
	return out
}

func (s Space) logicalSizes(devices int) (sizes []int) {
	for p := 1; p <= devices; p++ {
		if devices%p == 0 && (s.Logical == nil || slices.Contains(s.Logical, p)) {
			sizes = append(sizes, p)
		}
	}
	return sizes
}

func (s Space) stateShardings(replicas int) []logical.StateSharding {
	switch {
	case replicas == 1:
		return []logical.StateSharding{logical.ShardNothing}
	case s.States == nil:
		return logical.StateShardings()
	}
	return s.States
}

// settingCombinations returns all combinations of the values in Settings.
func (s Space) settingCombinations() []map[string]string {
	combinations := []map[string]string{nil}
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		var next []map[string]string
		for _, partial := range combinations {
			for _, value := range s.Settings[name] {
				settings := map[string]string{name: value}
				maps.Copy(settings, partial)
				next = append(next, settings)
			}
		}
		combinations = next
	}
	return combinations
}

// factorizations returns all ordered ways to write n as a product of the given number of factors.
func factorizations(n, factors int) (all [][]int) {
	if factors == 1 {
		return [][]int{{n}}
	}
	for f := 1; f <= n; f++ {
		if n%f != 0 {
			continue
		}
		for _, rest := range factorizations(n/f, factors-1) {
			all = append(all, append([]int{f}, rest...))
		}
	}
	return all
}
