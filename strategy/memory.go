package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

// MemoryError reports that a compiled step does not fit into the memory of a device. It matches
// [pjrt.ResourceExhausted], and its kind is ResourceExhaustedError.
type MemoryError struct {
	Function string
	// Used, Limit and Excess are the compiler's numbers for one device, such as "31.26G", or empty.
	Used, Limit, Excess string
	// Largest lists the largest arguments of the step, and Temporaries its largest temporary
	// values, the largest first. Suggestions are changes that reduce the memory.
	Largest     []TensorBytes
	Temporaries []memory.Temporary
	Suggestions []string
	// Step is the step without a program, for report.Of. Log is the message of the compiler.
	Step *CompiledStep
	Log  string
	Err  error
}

// TensorBytes is a tensor and its size on one device.
type TensorBytes struct {
	Name           string `json:"name"`
	Shape          string `json:"shape"`
	Annotation     string `json:"annotation"`
	BytesPerDevice int64  `json:"bytes_per_device"`
}

func (e *MemoryError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "strategy: %s does not fit into the memory of a device", e.Function)
	if e.Used != "" {
		fmt.Fprintf(&b, ": %s of %s", e.Used, e.Limit)
		if e.Excess != "" {
			fmt.Fprintf(&b, ", %s too much", e.Excess)
		}
	}
	for i, t := range e.Largest {
		sep := ", "
		if i == 0 {
			sep = "; the largest arguments are "
		}
		fmt.Fprintf(&b, "%s%s %s (%s, %s a device)", sep, t.Name, t.Shape, t.Annotation, units.Bytes(t.BytesPerDevice))
	}
	for i, t := range e.Temporaries[:min(len(e.Temporaries), 2)] {
		sep := " and "
		if i == 0 {
			sep = "; the largest temporaries are "
		}
		fmt.Fprintf(&b, "%s%s (%s", sep, t, units.Bytes(t.Bytes))
		if t.Line != nil {
			fmt.Fprintf(&b, ", %s", t.Line)
		}
		b.WriteString(")")
	}
	if len(e.Suggestions) > 0 {
		b.WriteString("; " + strings.Join(e.Suggestions, ", or "))
	} else {
		b.WriteString("; use more logical devices and split these tensors over them, or smaller batches")
	}
	return b.String()
}

func (e *MemoryError) Unwrap() error { return e.Err }

func (*MemoryError) Kind() errkind.Kind { return errkind.ResourceExhaustedError }

// largestTensors is the maximum length of MemoryError.Largest.
const largestTensors = 5

// newMemoryError describes why the compiler rejected a step that does not fit into memory. err is
// the error of the compiler.
func newMemoryError(c *CompiledStep, err error) *MemoryError {
	r, m := c.Refusal, c.Module
	e := &MemoryError{
		Function: c.Name, Used: r.Used, Limit: r.Limit, Excess: r.Excess, Log: r.Log, Step: c, Err: err,
		Temporaries: r.Temporaries(m.Text, m.Origins),
	}
	tensors, shardingErr := memory.Tensors(m, c.Variables, c.Replicas, c.LogicalDevices)
	if shardingErr == nil { // otherwise Error has a general suggestion
		e.Suggestions = memory.Step{
			Slice: c.Target.Name, Devices: c.Target.Devices, Replicas: c.Replicas, LogicalDevices: c.LogicalDevices, Module: m,
			Text:     m.Text,
			Settings: c.Settings, Tensors: tensors, ArgumentBytes: memory.ArgumentBytes(tensors), Temporaries: e.Temporaries,
		}.Suggestions()
	}
	for _, a := range m.Arguments {
		bytes := int64(a.DType.Size())
		for _, d := range a.ShardDims {
			bytes *= int64(d)
		}
		e.Largest = append(e.Largest, TensorBytes{
			Name: a.Name, Shape: fmt.Sprintf("%s%v", a.DType, a.LocalDims), Annotation: annotationText(a),
			BytesPerDevice: bytes,
		})
	}
	slices.SortStableFunc(e.Largest, func(a, b TensorBytes) int {
		return cmp.Compare(b.BytesPerDevice,
			a.BytesPerDevice)
	})
	e.Largest = e.Largest[:min(len(e.Largest), largestTensors)]
	return e
}

// annotationText describes the layout of an argument for an error message.
func annotationText(p spmd.ShardedTensor) string {
	var parts []string
	if text := p.Annotation.String(); text != "none" {
		parts = append(parts, text)
	}
	if p.ReplicaShard.IsSharded() {
		parts = append(parts, p.ReplicaShard.String())
	}
	return cmp.Or(strings.Join(parts, ", "), "a whole copy")
}
