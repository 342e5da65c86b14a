package checkpoint

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Retention says which checkpoints stay after a save. One stays if any of the rules keeps it. The
// zero value keeps all.
type Retention struct {
	// Last is how many of the newest stay. 0 keeps all, whatever the other rules say.
	Last int
	// Each keeps the steps that are multiples of it; 0 keeps none for that.
	Each int64
	// Best is how many of the best by Metric stay: those with the lowest values of
	// [SaveOptions].Metrics, or with Maximize the highest. Of equal ones the later is better. A
	// checkpoint without the metric, or whose value is no number, is not among them.
	Best     int
	Metric   string
	Maximize bool
}

func (r Retention) check() error {
	switch {
	case r.Last < 0:
		return wrong("option Retention.Last", "0 keeps all", "%d checkpoints", r.Last)
	case r.Each < 0:
		return wrong("option Retention.Each", "give a number of steps, or 0", "each %dth step", r.Each)
	case r.Best < 0 || (r.Best > 0) != (r.Metric != ""):
		return wrong("option Retention.Best", "give both, or neither", "%d by metric %q", r.Best, r.Metric)
	}
	return nil
}

// savedStep is a checkpoint as its retention sees it.
type savedStep struct {
	step  int64
	value float64 // of the metric, if known
	known bool
}

// drop returns the steps that do not stay, ascending.
func (r Retention) drop(saved []savedStep) (steps []int64) {
	if r.Last == 0 {
		return nil
	}
	saved = slices.Clone(saved)
	slices.SortFunc(saved, func(a, b savedStep) int { return cmp.Compare(a.step, b.step) })
	keep := map[int64]bool{}
	var best []savedStep
	for i, s := range saved {
		keep[s.step] = i >= len(saved)-r.Last || r.Each > 0 && s.step%r.Each == 0
		if s.known && !math.IsNaN(s.value) {
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
		keep[s.step] = true
	}
	for _, s := range saved {
		if !keep[s.step] {
			steps = append(steps, s.step)
		}
	}
	return steps
}

// textOf is a map of numbers as text, which has infinities.
func textOf(metrics map[string]float64) map[string]string {
	if len(metrics) == 0 {
		return nil
	}
	texts := map[string]string{}
	for name, x := range metrics {
		texts[name] = strconv.FormatFloat(x, 'g', -1, 64)
	}
	return texts
}

// numbersOf is the inverse of textOf. What is no number is left out.
func numbersOf(texts map[string]string) map[string]float64 {
	metrics := map[string]float64{}
	for name, text := range texts {
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			metrics[name] = x
		}
	}
	return metrics
}

// Metrics returns the metrics that were saved with the checkpoint; nil if there were none.
func (c *Checkpoint) Metrics() map[string]float64 {
	if c.sharded == nil || len(c.sharded.Metrics) == 0 {
		return nil
	}
	return numbersOf(c.sharded.Metrics)
}
