package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// flow contains the definitions and uses of a step's statements.
type flow struct {
	statements []*ir.Statement
	// defined maps a value to the index of the statement that defines it. It does not contain
	// parameters.
	defined map[*ir.Value]int
	// uses lists the values that each statement reads, including closures.
	uses [][]*ir.Value
	// regionOf is the region index of a statement, or -1.
	regionOf []int
	// alias maps a value to the value that it is an alias of. uses resolves aliases; the statements
	// do not.
	alias map[*ir.Value]*ir.Value
}

// deviceRegion is a set of the step's statements that run on one logical device.
type deviceRegion struct {
	device     int
	statements []int
}

// regionsOf returns the regions that the step requested. at contains the current index of each
// original statement.
func regionsOf(brackets []bracket, at []int) []deviceRegion {
	regions := make([]deviceRegion, len(brackets))
	for n, b := range brackets {
		regions[n].device = b.device
		for i := at[b.begin]; i < at[b.end]; i++ {
			regions[n].statements = append(regions[n].statements, i)
		}
	}
	return regions
}

func newFlow(f *ir.Function, regions []deviceRegion) *flow {
	fl := &flow{
		statements: f.Body, defined: map[*ir.Value]int{}, alias: map[*ir.Value]*ir.Value{},
		uses: make([][]*ir.Value, len(f.Body)), regionOf: make([]int, len(f.Body)),
	}
	for i, s := range f.Body {
		for _, v := range s.Results {
			fl.defined[v] = i
		}
		s.Reads(func(v *ir.Value) { fl.uses[i] = append(fl.uses[i], v) })
		fl.regionOf[i] = -1
	}
	for n, r := range regions {
		for _, i := range r.statements {
			fl.regionOf[i] = n
		}
	}
	return fl
}

// constant reports whether a value is computed without operands. Such a value is repeated at each
// reader instead of crossing a region's border. So are empty tensors, which the compiler drops at
// the border.
func (fl *flow) constant(v *ir.Value) bool {
	i, ok := fl.defined[v]
	return v.Type.Empty() || ok && len(fl.uses[i]) == 0 && len(fl.statements[i].Regions) == 0
}

// repeat returns copies of the statements that compute a constant.
func (w *writer) repeat(v *ir.Value) ([]*ir.Statement, error) {
	if v.Type.Empty() {
		return []*ir.Statement{empty(v)}, nil
	}
	return w.replaced(w.flow.statements[w.flow.defined[v]])
}

// border contains the values that cross a region's border.
type border struct {
	constants []*ir.Value // read from outside, repeated inside
	lent      []*ir.Value // constants of the region that are read outside
	in        []*ir.Value // operands
	kept      []*ir.Value // operands that an earlier region of the same device left there
	out       []*ir.Value // results, sent to all logical devices
	keep      []*ir.Value // results that only later regions of the device read
}

// borders computes the borders of all regions.
func (fl *flow) borders(regions []deviceRegion) []border {
	all := make([]border, len(regions))
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
			if fl.constant(v) {
				if reader >= 0 {
					add(&all[reader].constants, v)
				} else {
					add(&all[home].lent, v)
				}
				continue
			}
			stays := home >= 0 && reader >= 0 && regions[home].device == regions[reader].device
			if home >= 0 {
				if stays {
					add(&all[home].keep, v)
				} else {
					add(&all[home].out, v)
				}
			}
			if reader >= 0 {
				if stays {
					add(&all[reader].kept, v)
				} else {
					add(&all[reader].in, v)
				}
			}
		}
	}
	return all
}
