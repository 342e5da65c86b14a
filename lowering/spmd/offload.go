package spmd

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

const (
	pinnedHostSpace   = "pinned_host"
	deviceMemorySpace = "device"
)

// placeInMemory returns an op that copies a value to another memory space.
func placeInMemory(memory string, out, in *ir.Value) *ir.Statement {
	return genericOp("stablehlo.custom_call", out, in).AddAttribute("call_target_name",
		ir.String("annotate_device_placement")).
		AddAttribute("has_side_effect", ir.Bool(true)).AddAttribute("mhlo.frontend_attributes",
		ir.Raw(`{_xla_buffer_placement = "`+memory+`"}`))
}

// isOffloaded reports whether a kept value is moved to host memory. Scalars are not moved.
func (k *rematerializer) isOffloaded(v *ir.Value) bool { return k.policy.OnHost && v.Type.Rank() > 0 }

// checkOffload returns an error if compilers do not support values in host memory for a region.
// This applies to CPU devices, and to blocks outside loops, where libtpu would use more device
// memory.
func (t *Trace) checkOffload(kind region.Kind) error {
	reject := func(reason, hint string) error {
		return &errkind.Fault{Op: kind.String() + ":", Subject: "policy", Reason: reason, Hint: hint,
			Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	switch kind := kind.(type) {
	case region.Block:
		if kind.Policy.OnHost {
			return reject("blocks cannot keep values in host memory",
				"use package loop, which supports it, or remove remat.Policy.OnHost")
		}
	case region.Loop:
		if kind.Policy.OnHost && t.opts.Target == lowering.TargetCPU {
			return reject("CPU devices have no separate host memory", "remove remat.Policy.OnHost for CPU devices")
		}
	}
	return nil
}
