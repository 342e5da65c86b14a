package train

import "github.com/gomlx/gomlx/core/graph"

// Names of the metrics that [Options].Norms, UpdateNorm and LearningRate add.
const (
	gradientNorm  = "gradient_norm"
	parameterNorm = "parameter_norm"
	updateNorm    = "update_norm"
	learningRate  = "learning_rate"
)

// gauges returns the names of the metrics that only have the value of the last applied step and are
// not accumulated.
func (o *Options) gauges() (names []string) {
	if o.Norms {
		names = append(names, gradientNorm, parameterNorm)
	}
	if o.UpdateNorm {
		names = append(names, updateNorm)
	}
	if o.LearningRate.IsSet() {
		names = append(names, learningRate)
	}
	return names
}

// saveValues saves the values that the trained variables have before the update, to compute the
// update norm.
func saveValues(p *stepBuilder) { p.before = p.trainedValues() }

// computeNorms computes the norms that the options enable and returns them by the name of their
// metric. It must run after all updates. All norms share one all-reduce.
func (o *Options) computeNorms(p *stepBuilder) map[string]*graph.Node {
	var names []string
	var sets [][]*graph.Node
	now := p.trainedValues()
	if o.Norms {
		names, sets = append(names, parameterNorm), append(sets, now)
		if p.norm == nil {
			names, sets = append(names, gradientNorm), append(sets, p.gradients)
		}
	}
	if o.UpdateNorm {
		update := make([]*graph.Node, len(now))
		for i, x := range now {
			update[i] = graph.Sub(x, p.before[i])
		}
		names, sets = append(names, updateNorm), append(sets, update)
	}
	all := map[string]*graph.Node{}
	if p.norm != nil {
		all[gradientNorm] = p.norm
	}
	if len(sets) > 0 {
		for i, norm := range p.globalNorms(sets...) {
			all[names[i]] = norm
		}
	}
	return all
}
