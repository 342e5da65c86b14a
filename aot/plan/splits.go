package plan

import (
	"context"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// variableGroup is a set of variables of one shape whose paths differ only in numbers.
type variableGroup struct {
	pattern   string
	dims      []int
	firstPath string // path of the first variable
}

var digitRuns = regexp.MustCompile(`[0-9]+`)

// groupVariables groups the variables with at least two dimensions. It omits the optimizer's state.
func groupVariables(variables []Variable) (groups []variableGroup) {
	for _, v := range variables {
		if len(v.Dims) < 2 || logical.OwnerOfState(v.Path, nil) != "" {
			continue
		}
		pattern := "^" + digitRuns.ReplaceAllString(regexp.QuoteMeta(v.Path), "[0-9]+") + "$"
		i := slices.IndexFunc(groups, func(g variableGroup) bool { return g.pattern == pattern })
		if i < 0 {
			groups = append(groups, variableGroup{pattern, v.Dims, v.Path})
		}
	}
	return groups
}

// neighborPlans returns all plans that differ from p only in the sharding of one group of
// variables.
func (p Plan) neighborPlans(variables []Variable) (all []Plan) {
	groups := groupVariables(variables)
	mesh, err := sharding.NewMesh(append([]sharding.Axis{{Name: logical.ReplicaAxis, Size: p.Replicas}}, p.Axes...)...)
	if err != nil || len(groups) == 0 {
		return nil
	}
	shardedDim := make([]int, len(groups)) // sharded dimension of each group, or -1
	for i, g := range groups {
		shardedDim[i] = -1
		placed, err := p.Rules.SpecFor(mesh, g.firstPath, g.dims)
		if err != nil {
			return nil
		}
		for d, dim := range placed.Spec.Dims() {
			if slices.Contains(dim.Axes, p.Axes[0].Name) {
				shardedDim[i] = d
			}
		}
	}
	for i, g := range groups {
		for to := -1; to < len(g.dims); to++ {
			if to == shardedDim[i] || to >= 0 && g.dims[to]%p.Axes[0].Size != 0 {
				continue
			}
			shardedDims := slices.Clone(shardedDim)
			shardedDims[i] = to
			next := p
			next.Rules, next.RulesName = p.shardingRules(groups, shardedDims), "searched"
			all = append(all, next)
		}
	}
	return all
}

// shardingRules returns rules that shard each group of variables over the plan's first axis, and
// the training state like p. shardedDims[i] is the dimension of group i to shard, or -1 for none.
func (p Plan) shardingRules(groups []variableGroup, shardedDims []int) (rules logical.Rules) {
	for i, g := range groups {
		if shardedDims[i] < 0 {
			continue
		}
		dims := make([]string, len(g.dims))
		dims[shardedDims[i]] = p.Axes[0].Name
		r := logical.Match(g.pattern, logical.SplitOverAxes(dims...))
		rules = append(rules, r)
	}
	return withStateSharding(rules, p.State())
}

// searchShardings starts from the best plan with one axis and changes the sharding of one group of
// variables at a time, as long as the probed time decreases.
func (s *searcher) searchShardings(ctx context.Context) error {
	tried := map[*Candidate]bool{}
	for {
		start := s.bestProbed
		if start == nil || start.Plan.Logical() == 1 {
			start = s.bestShardedPlan()
		}
		if start == nil || tried[start] || len(start.Plan.Axes) != 1 {
			return nil
		}
		tried[start] = true
		next, err := s.sketchPlans(ctx, start.Plan.neighborPlans(start.Sketch.Variables))
		if err != nil {
			return err
		}
		if err := s.probePlans(ctx, next); err != nil {
			return err
		}
	}
}

// bestShardedPlan returns the best plan with several logical devices among the plans that were
// probed.
func (s *searcher) bestShardedPlan() (best *Candidate) {
	for _, c := range s.candidates {
		if c.Verdict == Probed && c.Plan.Logical() > 1 && (best == nil ||
			s.compareByGoal(c, best, c.Probe.Seconds, best.Probe.Seconds) < 0) {
			best = c
		}
	}
	return best
}
