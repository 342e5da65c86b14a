package report

import (
	"cmp"
	"errors"
	"math"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// addModelFLOPs counts the operations of a step in its StableHLO text. If ours is true, the text is
// the program of one replica, and the number is multiplied by the number of replicas.
func (r *Report) addModelFLOPs(text []byte, ours bool) {
	flops, unknown := hlo.ModelFLOPs(text)
	r.Cost = Cost{FLOPs: -1, BytesAccessed: -1, ModelFLOPs: flops}
	if unknown > 0 {
		r.note("%d loops of the step as written have an unknown number of iterations; the model FLOPs count one iteration",
			unknown)
	}
	if ours {
		// The step function is the program of one replica.
		r.Cost.ModelFLOPs *= float64(r.Replicas)
	}
}

// addCost adds the compiler's cost analysis of a program, which counts each loop once. The cost of
// further iterations is added from the simulation e, which is nil if the program could not be
// simulated.
func (r *Report) addCost(p *pjrt.Executable, e *cost.Estimate) error {
	if e != nil && e.Truncated {
		r.note("the optimized program is too large to count completely: loops count once, and there is no roofline")
		e = nil
	}
	analysis, err := p.CostAnalysis()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin does not estimate the cost: operations and bytes are counted in the optimized program, without " +
			"custom calls")
	} else if err != nil {
		return pluginError("read the cost analysis", err)
	}
	figure := func(name string, inLoops float64) float64 {
		v, ok := analysis[name].(float32)
		if !ok || v < 0 || math.IsInf(float64(v), 0) || v != v {
			return -1
		}
		return float64(v) + max(inLoops, 0)
	}
	isCounted := e != nil
	if !isCounted {
		e = &cost.Estimate{}
	}
	r.Cost.FLOPs, r.Cost.BytesAccessed = figure("flops", e.LoopFLOPs), figure("bytes accessed", e.LoopBytes)
	if err != nil && isCounted {
		r.Cost.FLOPs, r.Cost.BytesAccessed = e.FLOPs, e.Bytes
	}
	r.addRoofline(e, isCounted)
	if isCounted && e.Prediction == nil && r.Target.HBMBandwidth > 0 {
		r.note("no time is predicted for %s: predictions support only TPUs, and the roofline does not include launches "+
			"and the network", r.Target.Name)
	}
	if r.Predicted = e.Prediction; r.Predicted != nil {
		if possible := e.PeakFLOPS * float64(r.Replicas*r.LogicalDevices) * r.Predicted.Seconds; possible > 0 {
			r.Predicted.Utilization = r.Cost.ModelFLOPs / possible
		}
	}
	return nil
}

func (r *Report) addRoofline(e *cost.Estimate, isCounted bool) {
	if e.UnknownLoops > 0 {
		r.note("%d loops have an unknown number of iterations; they count as one iteration", e.UnknownLoops)
	}
	target := r.Target
	if target.PeakFLOPS <= 0 || target.HBMBandwidth <= 0 {
		r.note("the peak and the memory bandwidth of %s are unknown, so no time is estimated", target.Name)
		return
	}
	flops, bytes := r.Cost.FLOPs, r.Cost.BytesAccessed
	if isCounted {
		flops, bytes = e.RooflineFLOPs, e.RooflineBytes
		r.Cost.RooflineSeconds, r.Cost.Untimed = e.RooflineSeconds, e.Untimed
	}
	r.Cost.FloorSeconds = max(flops/target.PeakFLOPS, bytes/target.HBMBandwidth, 0)
	seconds := cmp.Or(r.Cost.RooflineSeconds, r.Cost.FloorSeconds)
	if possible := target.PeakFLOPS * float64(r.Replicas*r.LogicalDevices) * seconds; possible > 0 {
		r.Cost.Utilization = r.Cost.ModelFLOPs / possible
	}
}
