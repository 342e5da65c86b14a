package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

type dataFlow struct {
	statements []*ir.Statement
	// defined contains the index of the statement that defines a value. Parameters are not
	// included.
	defined map[*ir.Value]int
	// uses contains the values that each statement reads, also in its regions.
	uses [][]*ir.Value
	// regionOf contains the index of the region of each statement, or -1.
	regionOf []int
	// aliases maps a value to the value that replaces it. Aliases are resolved in uses but not in
	// statements.
	aliases map[*ir.Value]*ir.Value
}

// deviceRegion is a set of statements of the step that run on one logical device.
type deviceRegion struct {
	device     int
	statements []int
}

// deviceRegions returns the regions of the step that logical.OnDevice created. newIndex contains
// the current index of each traced statement.
func deviceRegions(ranges []regionRange, newIndex []int) []deviceRegion {
	regions := make([]deviceRegion, len(ranges))
	for n, b := range ranges {
		regions[n].device = b.device
		for i := newIndex[b.begin]; i < newIndex[b.end]; i++ {
			regions[n].statements = append(regions[n].statements, i)
		}
	}
	return regions
}

func newDataFlow(f *ir.Function, regions []deviceRegion) *dataFlow {
	fl := &dataFlow{
		statements: f.Body, defined: map[*ir.Value]int{}, aliases: map[*ir.Value]*ir.Value{},
		uses: make([][]*ir.Value, len(f.Body)), regionOf: make([]int, len(f.Body)),
	}
	for i, s := range f.Body {
		for _, v := range s.Results {
			fl.defined[v] = i
		}
		s.WalkOperands(func(v *ir.Value) { fl.uses[i] = append(fl.uses[i], v) })
		fl.regionOf[i] = -1
	}
	for n, r := range regions {
		for _, i := range r.statements {
			fl.regionOf[i] = n
		}
	}
	return fl
}

// isRepeatable reports whether each region that reads a value computes it again instead of
// receiving it. This applies to values without operands, which are cheap, and to empty values,
// which compilers drop at the boundary of a region.
func (fl *dataFlow) isRepeatable(v *ir.Value) bool {
	i, ok := fl.defined[v]
	return v.Type.IsEmpty() || ok && len(fl.uses[i]) == 0 && len(fl.statements[i].Regions) == 0
}

// repeatConstant returns statements that compute an empty or constant value again, for a region
// that reads it.
func (w *assembler) repeatConstant(v *ir.Value) ([]*ir.Statement, error) {
	if v.Type.IsEmpty() {
		return []*ir.Statement{emptyConstantOp(v)}, nil
	}
	return w.resolvePlaceholders(w.flow.statements[w.flow.defined[v]])
}

// regionBoundary contains the values that enter and leave a region.
type regionBoundary struct {
	constants         []*ir.Value // read from outside, repeated inside
	exportedConstants []*ir.Value // constants of the region that are read outside
	operands          []*ir.Value // operands
	keptOperands      []*ir.Value // operands that an earlier region of the same device left there
	results           []*ir.Value // results, sent to all logical devices
	keptResults       []*ir.Value // results that only later regions of the device read
}

func (fl *dataFlow) regionBoundaries(regions []deviceRegion) []regionBoundary {
	all := make([]regionBoundary, len(regions))
	add := func(list *[]*ir.Value, v *ir.Value) {
		if !slices.Contains(*list, v) {
			*list = append(*list, v)
		}
	}
	for i := range fl.statements {
		reader := fl.regionOf[i]
		for _, v := range fl.uses[i] {
			home := -1
			if def, ok := fl.defined[v]; ok {
				home = fl.regionOf[def]
			}
			if home == reader {
				continue
			}
			if fl.isRepeatable(v) {
				if reader >= 0 {
					add(&all[reader].constants, v)
				} else {
					add(&all[home].exportedConstants, v)
				}
				continue
			}
			stays := home >= 0 && reader >= 0 && regions[home].device == regions[reader].device
			if home >= 0 {
				if stays {
					add(&all[home].keptResults, v)
				} else {
					add(&all[home].results, v)
				}
			}
			if reader >= 0 {
				if stays {
					add(&all[reader].keptOperands, v)
				} else {
					add(&all[reader].operands, v)
				}
			}
		}
	}
	return all
}
