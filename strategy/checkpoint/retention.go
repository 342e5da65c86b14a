package checkpoint

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Retention selects the checkpoints to keep after a save. A checkpoint is kept if any rule keeps
// it. The zero value keeps all.
type Retention struct {
	// Last is the number of the latest checkpoints to keep. 0 keeps all, regardless of the other rules.
	Last int
	// Every keeps steps that are multiples of it. 0 disables this rule.
	Every int64
	// Best is the number of the best checkpoints to keep: those with the lowest value of Metric in
	// [SaveOptions].Metrics, or the highest with Maximize. Of equal values the later step is
	// better. Checkpoints without the metric or with a NaN value are not considered.
	Best     int
	Metric   string
	Maximize bool
}

func (r Retention) validate() error {
	switch {
	case r.Last < 0:
		return argumentError("option Retention.Last", "0 keeps all", "%d checkpoints", r.Last)
	case r.Every < 0:
		return argumentError("option Retention.Each", "give a number of steps, or 0", "each %dth step", r.Every)
	case r.Best < 0 || (r.Best > 0) != (r.Metric != ""):
		return argumentError("option Retention.Best", "give both, or neither", "%d by metric %q", r.Best, r.Metric)
	}
	return nil
}

// savedStep describes a saved step, from which [Retention] decides whether to keep its checkpoint.
type savedStep struct {
	step     int64
	value    float64 // value of the metric, if known
	hasValue bool
}

// stepsToRemove returns the saved steps that no rule keeps, in ascending order.
func (r Retention) stepsToRemove(saved []savedStep) (steps []int64) {
	if r.Last == 0 {
		return nil
	}
	saved = slices.Clone(saved)
	slices.SortFunc(saved, func(a, b savedStep) int { return cmp.Compare(a.step, b.step) })
	kept := map[int64]bool{}
	var best []savedStep
	for i, s := range saved {
		kept[s.step] = i >= len(saved)-r.Last || r.Every > 0 && s.step%r.Every == 0
		if s.hasValue && !math.IsNaN(s.value) {
			best = append(best, s)
		}
	}
	slices.SortFunc(best, func(a, b savedStep) int {
		if r.Maximize {
			a.value, b.value = b.value, a.value
		}
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(b.step, a.step))
	})
	for _, s := range best[:min(r.Best, len(best))] {
		kept[s.step] = true
	}
	for _, s := range saved {
		if !kept[s.step] {
			steps = append(steps, s.step)
		}
	}
	return steps
}

// formatMetrics converts metrics to text for a manifest, because numbers in JSON cannot be
// infinite.
func formatMetrics(metrics map[string]float64) map[string]string {
	if len(metrics) == 0 {
		return nil
	}
	texts := map[string]string{}
	for name, x := range metrics {
		texts[name] = strconv.FormatFloat(x, 'g', -1, 64)
	}
	return texts
}

// parseMetrics parses the text that formatMetrics returns. It ignores invalid numbers.
func parseMetrics(texts map[string]string) map[string]float64 {
	metrics := map[string]float64{}
	for name, text := range texts {
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			metrics[name] = x
		}
	}
	return metrics
}

// Metrics returns the metrics that were saved with the checkpoint, or nil if there are none.
func (c *Checkpoint) Metrics() map[string]float64 {
	if c.sharded == nil || len(c.sharded.Metrics) == 0 {
		return nil
	}
	return parseMetrics(c.sharded.Metrics)
}
