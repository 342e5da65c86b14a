package accept

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// requiredDTypes must work on all platforms.
var requiredDTypes = []pjrt.DType{pjrt.Pred, pjrt.S8, pjrt.U8, pjrt.S16, pjrt.U16, pjrt.S32, pjrt.U32, pjrt.F32,
	pjrt.BF16}

// optionalDTypes may be unsupported on a platform.
var optionalDTypes = []pjrt.DType{pjrt.S64, pjrt.U64, pjrt.F16, pjrt.F64, pjrt.C64, pjrt.C128, pjrt.S4, pjrt.U4,
	pjrt.F8E5M2, pjrt.F8E4M3FN, pjrt.F8E4M3B11FNUZ, pjrt.F8E5M2FNUZ, pjrt.F8E4M3FNUZ, pjrt.F8E4M3, pjrt.F8E3M4}

// quickDTypes are the optional dtypes that a quick run tests.
var quickDTypes = []pjrt.DType{pjrt.S64, pjrt.F16, pjrt.F64, pjrt.C64, pjrt.F8E5M2, pjrt.F8E4M3FN}

// dtypeValues is the number of elements of each test tensor.
const dtypeValues = 16

// isReduced reports whether the test sums elements of the dtype over the devices. 8-bit floats and
// dtypes of fewer than 8 bits are not summed.
func isReduced(t pjrt.DType) bool { return !isFloat8(t) && t.Bits() >= 8 }

// dtypeProgram returns a program that doubles a tensor, and sums it over all devices in float32.
func dtypeProgram(t pjrt.DType, n int) rawProgram {
	in, wide := tensorType{t, []int{dtypeValues}}, tensorType{pjrt.F32, []int{dtypeValues}}
	p := rawProgram{name: "dtype " + t.String(), inputs: []tensorType{in}, outputs: []tensorType{in, wide}}
	switch {
	case t == pjrt.Pred:
		p.body = fmt.Sprintf("    %%r0 = stablehlo.or %%x0, %%x0 : %s\n", in)
	case isFloat8(t):
		p.body = fmt.Sprintf("    %%w = stablehlo.convert %%x0 : (%[1]s) -> %[2]s\n    %%d = stablehlo.add %%w, %%w : "+
			"%[2]s\n    %%r0 = stablehlo.convert %%d : (%[2]s) -> %[1]s\n", in, wide)
	default:
		p.body = fmt.Sprintf("    %%r0 = stablehlo.add %%x0, %%x0 : %s\n", in)
	}
	from, real := "%x0", in
	if t == pjrt.C64 || t == pjrt.C128 {
		real.dtype = pjrt.F32
		if t == pjrt.C128 {
			real.dtype = pjrt.F64
		}
		p.body += fmt.Sprintf("    %%part = stablehlo.real %%x0 : (%s) -> %s\n", in, real)
		from = "%part"
	}
	p.body += fmt.Sprintf("    %%r1 = stablehlo.convert %s : (%s) -> %s\n", from, real, wide)
	if isReduced(t) {
		p.outputs = append(p.outputs, in)
		p.body += collectiveText("all_reduce", 2, in, in, [][]int{sequence(n)})
	}
	return p
}

// dtypeInput returns element j of the input of device d. The inputs of all devices except the first
// two are 0.
func dtypeInput(d, j int) int {
	if d > 1 {
		return 0
	}
	return (j + d) % 4
}

// checkDTypes copies a tensor of each dtype to the devices, runs dtypeProgram, and checks the results.
func checkDTypes(ctx context.Context, w *partRun) error {
	var has, lacks []string
	others := optionalDTypes
	if w.session.opts.Quick {
		others = quickDTypes
	}
	for _, t := range slices.Concat(requiredDTypes, others) {
		w.setActivity("dtype %s", t)
		err := w.checkDType(ctx, t)
		switch {
		case err == nil:
			has = append(has, t.String())
		case ctx.Err() != nil:
			return err
		case slices.Contains(requiredDTypes, t):
			w.addFailure("%s: %v", t, err)
		default:
			lacks = append(lacks, t.String())
		}
	}
	w.addFact("computes with", "%s", strings.Join(has, " "))
	if len(lacks) > 0 {
		w.addFact("not available", "%s", strings.Join(lacks, " "))
	}
	return nil
}

func (w *partRun) checkDType(ctx context.Context, t pjrt.DType) error {
	n := w.numDevices()
	return w.session.runRaw(ctx, dtypeProgram(t, n), func(d, _ int) []byte {
		var values []int
		for j := range dtypeValues {
			values = append(values, dtypeInput(d, j))
		}
		return encodeNumbers(t, values...)
	}, func(d, i int, data []byte) {
		what, dtype := [...]string{"doubled", "as F32", "added up"}[i], t
		var right []byte
		for j := range dtypeValues {
			switch v := dtypeInput(d, j); i {
			case 0:
				right = append(right, encodeSum(t, 2*v, 2)...)
			case 1:
				if t == pjrt.Pred {
					v = min(v, 1)
				}
				dtype, right = pjrt.F32, appendNumber(right, pjrt.F32, v)
			case 2:
				sum := 0
				for d := range n {
					sum += dtypeInput(d, j)
				}
				right = append(right, encodeSum(t, sum, n)...)
			}
		}
		w.compareBytes(fmt.Sprintf("%s %s, device %d", t, what, d), dtype, data, right)
	})
}
