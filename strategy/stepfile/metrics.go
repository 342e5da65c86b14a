package stepfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// metrics is the JSON form of a [savedstep.Metrics].
type metrics struct {
	// State is the name of the distributed variable with the accumulated values.
	State string   `json:"state"`
	Names []string `json:"names"`
	Forms []string `json:"forms,omitempty"`
}

func encodeMetrics(m savedstep.Metrics) *metrics {
	if !m.IsSet() {
		return nil
	}
	out := &metrics{State: m.State, Names: m.Names}
	for _, form := range m.Forms {
		out.Forms = append(out.Forms, train.Form(form).String())
	}
	return out
}

// decode converts the JSON form to the step's metrics. It returns an error if the variable of the
// metrics is not an argument of the module.
func (m *metrics) decode(of *spmd.Module) (s savedstep.Metrics, err error) {
	if m == nil {
		return s, nil
	}
	s.State, s.Names = m.State, m.Names
	for _, name := range m.Forms {
		form := train.Mean
		for ; form.String() != name; form++ {
			if form == train.Total {
				return s, fmt.Errorf("a metric of the form %q", name)
			}
		}
		s.Forms = append(s.Forms, int(form))
	}
	state := func(a spmd.ShardedTensor) bool {
		return a.Name == m.State && a.DType == dtypes.Float64 && slices.Equal(a.LocalDims,
			[]int{len(m.Names), 2}) && a.PerReplica
	}
	if !s.IsSet() || len(s.Forms) > len(s.Names) || !slices.ContainsFunc(of.Arguments, state) {
		return s, fmt.Errorf("%d metrics of %d forms in %q, which does not hold them", len(s.Names), len(s.Forms),
			m.State)
	}
	return s, nil
}

// findMetricState returns the variable that stores the step's metrics, or nil for a step without
// metrics. It looks up the variable in given and then by name in the strategy, and otherwise
// creates it. The returned map is given, plus the variable if it was created.
func findMetricState(s *strategy.TPUStrategy, step *savedstep.Step,
	given map[string]*strategy.Variable) (map[string]*strategy.Variable, *strategy.Variable, error) {
	m := step.Metrics
	if !m.IsSet() {
		return given, nil, nil
	}
	if v, ok := given[m.State]; ok {
		return given, v, nil
	}
	for _, v := range s.DistributedVariables() {
		if v.Path() == m.State {
			return given, v, nil // loading returns an error if two have the name
		}
	}
	v, err := engine.Internal(s).NewMetricState(m.State, len(m.Names))
	if err != nil {
		return nil, nil, err
	}
	if given = maps.Clone(given); given == nil {
		given = map[string]*strategy.Variable{}
	}
	given[m.State] = v
	return given, v, nil
}
