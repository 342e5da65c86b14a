package report

import (
	"cmp"
	"errors"
	"math"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// addModelFLOPs counts the operations of the StableHLO text. ours is set if the text is the step of
// one replica.
func (r *Report) addModelFLOPs(text []byte, ours bool) {
	flops, unknown := modelFLOPs(text)
	r.Cost = Cost{FLOPs: -1, BytesAccessed: -1, ModelFLOPs: flops}
	if unknown > 0 {
		r.note("%d loops of the step as it was written run for a number of rounds that is not known; what the model asks for counts one", unknown)
	}
	if ours {
		// The step function is the program of one replica.
		r.Cost.ModelFLOPs *= float64(r.Replicas)
	}
}

// addCost adds the compiler's cost analysis of a program, in which each loop counts once, and the
// further iterations of loops according to the optimized program m, which is nil if it cannot be
// read.
func (r *Report) addCost(p *pjrt.Executable, m *hloModule) error {
	var all, once work
	on, _ := newMachine(r.Target.Name)
	if m != nil {
		var w *worker
		all, w = m.worked(r.Target, false, on)
		once = m.work(r.Target, true, nil)
		r.addSchedule(m, w)
	}
	if all.cut || once.cut {
		r.note("the optimized program is too large to be counted to its end: what is in loops counts once, and there is no roofline")
		m, all, once = nil, work{}, work{}
	}
	cost, err := p.CostAnalysis()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin estimates no cost: operations and bytes are counted in the optimized program, without those of custom calls")
	} else if err != nil {
		return fromPlugin("read the cost analysis", err)
	}
	number := func(name string, more float64) float64 {
		v, ok := cost[name].(float32)
		if !ok || v < 0 || math.IsInf(float64(v), 0) || v != v {
			return -1
		}
		return float64(v) + max(more, 0)
	}
	r.Cost.FLOPs = number("flops", all.flops-once.flops)
	r.Cost.BytesAccessed = number("bytes accessed", all.traffic.bytes-once.traffic.bytes)
	if err != nil && m != nil {
		r.Cost.FLOPs, r.Cost.BytesAccessed = bounded(all.flops), bounded(all.traffic.bytes)
	}
	r.addRoofline(m, all)
	if m != nil && on == nil && r.Target.HBMBandwidth > 0 {
		r.note("no time is predicted for %s: the prediction knows TPUs alone, and the roofline knows nothing of launches and of the network", r.Target.Name)
	}
	if m != nil && on != nil {
		r.Predicted = on.prediction(all.times)
		if can := on.value(peakRate) * float64(r.Replicas*r.LogicalDevices) * r.Predicted.Seconds; can > 0 {
			r.Predicted.Utilization = r.Cost.ModelFLOPs / can
		}
	}
	return nil
}

// addRoofline adds the times that follow from the work of a program.
func (r *Report) addRoofline(m *hloModule, all work) {
	if all.loops > 0 {
		r.note("%d loops run for a number of rounds that is not known; what is in them counts for one", all.loops)
	}
	target := r.Target
	if target.PeakFLOPS <= 0 || target.HBMBandwidth <= 0 {
		r.note("the peak and the memory's rate of %s are not known, so no time is estimated", target.Name)
		return
	}
	flops, moved := r.Cost.FLOPs, r.Cost.BytesAccessed
	if m != nil {
		flops, moved = all.atOnce.flops, all.atOnce.main
		r.Cost.RooflineSeconds, r.Cost.Untimed = all.seconds, int(min(all.untimed, maxRounds))
	}
	r.Cost.FloorSeconds = max(flops/target.PeakFLOPS, moved/target.HBMBandwidth, 0)
	seconds := cmp.Or(r.Cost.RooflineSeconds, r.Cost.FloorSeconds)
	if can := target.PeakFLOPS * float64(r.Replicas*r.LogicalDevices) * seconds; can > 0 {
		r.Cost.Utilization = r.Cost.ModelFLOPs / can
	}
}
