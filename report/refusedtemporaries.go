package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The allocations that the TPU compiler lists when it rejects a program.
var (
	allocation     = regexp.MustCompile(`(?s)[0-9]+\. Size: ([0-9.]+[KMGT]?)\b(.*?)={5}`)
	allocatedFor   = regexp.MustCompile(`op_name="([^"]*)"`)
	allocatedShape = regexp.MustCompile(`Shape: ([a-z0-9]+)\[([0-9,]*)\]`)
	allocatedBy    = regexp.MustCompile(`XLA label: %?([a-z-]+)`)
)

// temporaries returns the temporaries that the compiler lists, the largest first.
func (r *Refusal) temporaries(origins []*ir.Origin) (all []Temporary) {
	for _, match := range allocation.FindAllStringSubmatch(r.Log, mostTemporaries) {
		if !strings.Contains(match[2], "HLO temp") {
			continue
		}
		t := Temporary{Bytes: bytesOf(match[1]), Count: 1, Operation: "operation"}
		if by := allocatedBy.FindStringSubmatch(match[2]); by != nil {
			t.Operation = by[1]
		}
		if of := allocatedFor.FindStringSubmatch(match[2]); of != nil {
			t.Source = of[1]
			t.Line = lineOf(originOf(t.Source, origins))
		}
		if shape := allocatedShape.FindStringSubmatch(match[2]); shape != nil {
			t.DType = shape[1]
			for dim := range strings.SplitSeq(shape[2], ",") {
				if n := 0; dim != "" {
					_, _ = fmt.Sscan(dim, &n) // the regular expression allows only digits
					t.Shape = append(t.Shape, n)
				}
			}
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b Temporary) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}

// writtenResult matches an operation in the StableHLO of a step whose result compilers write to
// main memory: the dimensions and the dtype of its last result, its name and the operation.
var writtenResult = regexp.MustCompile(`tensor<((?:[0-9]{1,15}x)+)([a-z0-9]+)>\)? loc\("((dot_general|convolution|gather|scatter|concatenate|sort)[a-z_]*` + ir.NumberSeparator + `[0-9]+)"\)`)

// writtenTemporaries returns the largest results of such operations.
func writtenTemporaries(text []byte, origins []*ir.Origin) (all []Temporary) {
	type kind struct{ source, dtype, shape string }
	for _, match := range writtenResult.FindAllSubmatch(text, -1) {
		s, ok := parseWritten(string(match[1]), string(match[2]))
		if t := (Temporary{Operation: string(match[4]), Source: string(match[3]), DType: string(match[2]), Shape: s.ints(), Bytes: s.bytes(), Count: 1}); ok && t.Bytes >= leastTemporary {
			t.Line = lineOf(originOf(t.Source, origins))
			all = append(all, t)
		}
	}
	all = together(all, func(t Temporary) kind { return kind{t.Source, t.DType, dimsText(t.Shape)} }, func(first *Temporary, _ Temporary) { first.Count++ })
	slices.SortStableFunc(all, func(a, b Temporary) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(len(all), mostTemporaries)]
}

// parseWritten parses dimensions such as "8x16x" and a dtype of StableHLO.
func parseWritten(dims, dtype string) (s hloShape, ok bool) {
	signed, isSigned := strings.CutPrefix(dtype, "i")
	unsigned, isUnsigned := strings.CutPrefix(dtype, "ui")
	for number, name := range elementNames {
		if name == dtype || isSigned && name == "s"+signed || isUnsigned && name == "u"+unsigned {
			s.element = number
		}
	}
	for dim := range strings.SplitSeq(strings.TrimSuffix(dims, "x"), "x") {
		n := uint64(0)
		_, _ = fmt.Sscan(dim, &n) // the regular expression allows only digits
		s.dims = append(s.dims, n)
	}
	return s, s.element > 0
}

func (s hloShape) ints() (all []int) {
	for _, d := range s.dims {
		all = append(all, int(d))
	}
	return all
}
