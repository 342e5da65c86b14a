package train

import "github.com/gomlx/gomlx/core/graph"

// The names of the metrics that [Options].Norms, UpdateNorm and LearningRate add.
const (
	gradientNorm  = "gradient_norm"
	parameterNorm = "parameter_norm"
	updateNorm    = "update_norm"
	learningRate  = "learning_rate"
)

// gauges are the metrics of a step that are those of the last step taken, in their order.
func (o *Options) gauges() (names []string) {
	if o.Norms {
		names = append(names, gradientNorm, parameterNorm)
	}
	if o.UpdateNorm {
		names = append(names, updateNorm)
	}
	if o.LearningRate.Is() {
		names = append(names, learningRate)
	}
	return names
}

// before is the stage that keeps what the norm of an update is taken of.
func before(p *pass) { p.before = p.values() }

// norms are those of the gauges of a step, taken when all is updated. Their sums cross the replicas
// in one all-reduce.
func (o *Options) norms(p *pass) map[string]*graph.Node {
	var names []string
	var sets [][]*graph.Node
	now := p.values()
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
