package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
)

// usesPartitioner reports whether the partitioner splits tensors at the current point of the trace.
// This is the case if a logical axis has several devices, and no enclosing region is manual over
// that axis.
func (t *Trace) usesPartitioner() bool {
	manual := region.ManualAxes(t)
	return len(manual) == 0 || slices.ContainsFunc(t.nontrivialAxes(t.mesh.AxisNames()),
		func(name string) bool { return !slices.Contains(manual, name) })
}

// checkAnnotation returns an error if an annotation is not allowed at the current point of the
// trace. Inside a region that is manual over some logical axes, each device has a separate tensor,
// which annotations can split only over the other axes.
func (t *Trace) checkAnnotation(a logical.Annotation, shape []int) error {
	manual := region.ManualAxes(t)
	if len(manual) == 0 || a.Kind() == logical.KindNone {
		return nil
	}
	reject := func(reason, hint string) error {
		return &logical.Error{Op: a.String(), Shape: shape, Dim: -1, Devices: t.opts.LogicalDevices, Reason: reason,
			Hint: hint}
	}
	free := slices.DeleteFunc(t.mesh.AxisNames(), func(name string) bool { return slices.Contains(manual, name) })
	if len(free) == 0 {
		return reject("inside a manual region over all logical axes, where each device has a separate tensor",
			"annotate before or after the region, or make the region manual over fewer axes")
	}
	if a.Kind() == logical.KindReplicate {
		return nil
	}
	if a.Axes() == nil {
		return reject(fmt.Sprintf("inside a region that is manual over %v, where tensors can be split over the axes %v only",
			manual, free),
			"use logical.SplitOver with the names of these axes")
	}
	for _, names := range a.Axes() {
		for _, name := range names {
			if slices.Contains(manual, name) {
				return reject(fmt.Sprintf("inside a region that is manual over the axis %s", name),
					fmt.Sprintf("name axes of %v only", free))
			}
		}
	}
	return nil
}
