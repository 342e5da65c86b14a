package plan

import (
	"context"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// group is a set of variables of one shape whose paths differ only in numbers.
type group struct {
	pattern string
	dims    []int
	path    string // path of the first variable
}

var digits = regexp.MustCompile(`[0-9]+`)

// groups groups the variables with at least two dimensions, without the optimizer's state.
func groups(all []Variable) (list []group) {
	for _, v := range all {
		if len(v.Dims) < 2 || logical.OwnerOfState(v.Path, nil) != "" {
			continue
		}
		pattern := "^" + digits.ReplaceAllString(regexp.QuoteMeta(v.Path), "[0-9]+") + "$"
		i := slices.IndexFunc(list, func(g group) bool { return g.pattern == pattern })
		if i < 0 {
			list = append(list, group{pattern, v.Dims, v.Path})
		}
	}
	return list
}

// neighbors returns the plans that differ from p in the sharding of one group of variables. Their
// rules name each group.
func (p Plan) neighbours(variables []Variable) (all []Plan) {
	list := groups(variables)
	mesh, err := sharding.NewMesh(append([]sharding.Axis{{Name: logical.ReplicaAxis, Size: p.Replicas}}, p.Axes...)...)
	if err != nil || len(list) == 0 {
		return nil
	}
	now := make([]int, len(list)) // sharded dimension of each group, or -1
	for i, g := range list {
		now[i] = -1
		placed, err := p.Rules.PlaceVariable(mesh, g.path, g.dims)
		if err != nil {
			return nil
		}
		for d, dim := range placed.Spec.Dims() {
			if slices.Contains(dim.Axes, p.Axes[0].Name) {
				now[i] = d
			}
		}
	}
	for i, g := range list {
		for to := -1; to < len(g.dims); to++ {
			if to == now[i] || to >= 0 && g.dims[to]%p.Axes[0].Size != 0 {
				continue
			}
			splits := slices.Clone(now)
			splits[i] = to
			next := p
			next.Rules, next.RulesName = p.with(list, splits), "searched"
			all = append(all, next)
		}
	}
	return all
}

// with returns rules that shard the given dimension of each group over the plan's first axis, and
// shard the state like p.
func (p Plan) with(list []group, splits []int) (rules logical.Rules) {
	for i, g := range list {
		if splits[i] < 0 {
			continue
		}
		dims := make([]string, len(g.dims))
		dims[splits[i]] = p.Axes[0].Name
		r := logical.Match(g.pattern, logical.SplitOverAxes(dims...))
		rules = append(rules, r)
	}
	return sharing(rules, p.State())
}

// splits changes the sharding of one group at a time, starting from the best plan with one axis, as
// long as a probe becomes better.
func (s *search) splits(ctx context.Context) error {
	tried := map[*Candidate]bool{}
	for {
		from := s.best
		if from == nil || from.Plan.Logical() == 1 {
			from = s.bestSplit()
		}
		if from == nil || tried[from] || len(from.Plan.Axes) != 1 {
			return nil
		}
		tried[from] = true
		next, err := s.sketch(ctx, from.Plan.neighbours(from.Sketch.Variables))
		if err != nil {
			return err
		}
		if err := s.probe(ctx, next); err != nil {
			return err
		}
	}
}

// bestSplit returns the best plan with several logical devices.
func (s *search) bestSplit() (best *Candidate) {
	for _, c := range s.all {
		if c.Verdict == Probed && c.Plan.Logical() > 1 && (best == nil || s.compare(c, best, c.Probe.Seconds, best.Probe.Seconds) < 0) {
			best = c
		}
	}
	return best
}
