package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/report"
)

// MemoryError reports that a compiled step does not fit into the memory of a device. It matches
// [pjrt.ResourceExhausted].
type MemoryError struct {
	// Function is the name of the step function.
	Function string
	// Used, Limit and Excess are the compiler's numbers for one device, as text such as "31.26G".
	// They are empty if the compiler did not report them.
	Used, Limit, Excess string
	// Largest lists the largest arguments of the step, by bytes per device.
	Largest []TensorBytes
	// Report describes the step: its variables and arguments, the memory that the model requests,
	// the compiler's numbers, and suggested changes.
	Report *report.Report
	// Log is the complete message of the compiler, which lists the largest allocations.
	Log string
	Err error
}

// TensorBytes is a tensor and its size in bytes on one device.
type TensorBytes struct {
	Name           string `json:"name"`
	Shape          string `json:"shape"`
	Annotation     string `json:"annotation"`
	BytesPerDevice int64  `json:"bytes_per_device"`
}

// Error returns the compiler's numbers, the largest arguments and suggestions.
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
		fmt.Fprintf(&b, "%s%s %s (%s, %s a device)", sep, t.Name, t.Shape, t.Annotation, report.Bytes(t.BytesPerDevice))
	}
	if e.Report != nil {
		for i, t := range e.Report.Temporaries[:min(len(e.Report.Temporaries), 2)] {
			sep := " and "
			if i == 0 {
				sep = "; the largest temporaries are "
			}
			fmt.Fprintf(&b, "%s%s (%s", sep, t, report.Bytes(t.Bytes))
			if t.Line != nil {
				fmt.Fprintf(&b, ", %s", t.Line)
			}
			b.WriteString(")")
		}
	}
	if e.Report != nil && len(e.Report.Suggestions) > 0 {
		b.WriteString("; " + strings.Join(e.Report.Suggestions, ", or "))
	} else {
		b.WriteString("; use more logical devices and split these tensors over them, or smaller batches")
	}
	return b.String()
}

// Unwrap returns the compiler's error.
func (e *MemoryError) Unwrap() error { return e.Err }

// Kind returns ResourceExhaustedError.
func (*MemoryError) Kind() errkind.Kind { return errkind.ResourceExhaustedError }

// largestTensors bounds MemoryError.Largest.
const largestTensors = 5

// memoryError returns the compiler's error with the largest arguments of the module.
func memoryError(name string, m *spmd.Module, refusal *report.Refusal, err error) *MemoryError {
	e := &MemoryError{Function: name, Used: refusal.Used, Limit: refusal.Limit, Excess: refusal.Excess,
		Log: refusal.Log, Err: err}
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

// annotationText describes the layout of an argument.
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
