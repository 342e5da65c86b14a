package plan

import (
	"context"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// group is variables whose paths differ by numbers only, with equal shapes.
type group struct {
	pattern string
	dims    []int
	path    string // of the first
}

var digits = regexp.MustCompile(`[0-9]+`)

// groups collects variables, but for those of one dimension and those that an optimizer keeps of others.
func groups(all []Variable) (list []group) {
	for _, v := range all {
		if len(v.Dims) < 2 || logical.StateOf(v.Path, nil) != "" {
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

// neighbors are the plans that differ from one in the split of one group of variables. The rules of each
// name the groups one by one.
func (p Plan) neighbours(variables []Variable) (all []Plan) {
	list := groups(variables)
	mesh, err := sharding.NewMesh(append([]sharding.Axis{{Name: logical.ReplicaName, Size: p.Replicas}}, p.Axes...)...)
	if err != nil || len(list) == 0 {
		return nil
	}
	now := make([]int, len(list)) // the dimension that is split, or -1
	for i, g := range list {
		now[i] = -1
		placed, err := p.Rules.Place(mesh, g.path, g.dims)
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

// with are rules that split these dimensions of groups over the plan's first axis, and share the state out
// as the plan does.
func (p Plan) with(list []group, splits []int) (rules logical.Rules) {
	for i, g := range list {
		if splits[i] < 0 {
			continue
		}
		dims := make([]string, len(g.dims))
		dims[splits[i]] = p.Axes[0].Name
		r := logical.Match(g.pattern, logical.Over(dims...))
		rules = append(rules, r)
	}
	return sharing(rules, p.State())
}

// splits changes the split of one group after the other, from the best plan with one axis on, as long as
// that makes a probe better.
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

// bestSplit is the best plan of several logical devices.
func (s *search) bestSplit() (best *Candidate) {
	for _, c := range s.all {
		if c.Verdict == Probed && c.Plan.Logical() > 1 && (best == nil || s.compare(c, best, c.Probe.Seconds, best.Probe.Seconds) < 0) {
			best = c
		}
	}
	return best
}
