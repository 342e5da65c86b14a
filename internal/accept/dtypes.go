package accept

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// everywhere are the dtypes that each platform has. Others a generation may lack.
var everywhere = []pjrt.DType{pjrt.Pred, pjrt.S8, pjrt.U8, pjrt.S16, pjrt.U16, pjrt.S32, pjrt.U32, pjrt.F32, pjrt.BF16}

// elsewhere are the dtypes that are looked for.
var elsewhere = []pjrt.DType{pjrt.S64, pjrt.U64, pjrt.F16, pjrt.F64, pjrt.C64, pjrt.C128, pjrt.S4, pjrt.U4,
	pjrt.F8E5M2, pjrt.F8E4M3FN, pjrt.F8E4M3B11FNUZ, pjrt.F8E5M2FNUZ, pjrt.F8E4M3FNUZ, pjrt.F8E4M3, pjrt.F8E3M4}

// quickly are those of them that a quick run looks for.
var quickly = []pjrt.DType{pjrt.S64, pjrt.F16, pjrt.F64, pjrt.C64, pjrt.F8E5M2, pjrt.F8E4M3FN}

// dtypeValues is the number of elements of a program of a dtype.
const dtypeValues = 16

// crosses says whether a dtype is added up over the devices: narrow ones only pass through.
func crosses(t pjrt.DType) bool { return !isSmallFloat(t) && t.Bits() >= 8 }

// dtypeProgram doubles a tensor, gives it as float32, and adds it up over the devices.
func dtypeProgram(t pjrt.DType, n int) raw {
	in, wide := tensorType{t, []int{dtypeValues}}, tensorType{pjrt.F32, []int{dtypeValues}}
	p := raw{name: "dtype " + t.String(), in: []tensorType{in}, out: []tensorType{in, wide}}
	switch {
	case t == pjrt.Pred:
		p.body = fmt.Sprintf("    %%r0 = stablehlo.or %%x0, %%x0 : %s\n", in)
	case isSmallFloat(t):
		p.body = fmt.Sprintf("    %%w = stablehlo.convert %%x0 : (%[1]s) -> %[2]s\n    %%d = stablehlo.add %%w, %%w : %[2]s\n    %%r0 = stablehlo.convert %%d : (%[2]s) -> %[1]s\n", in, wide)
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
	if crosses(t) {
		p.out = append(p.out, in)
		p.body += collectiveText("all_reduce", 2, in, in, [][]int{sequence(n)})
	}
	return p
}

// dtypeGiven is element j of device d: zeros from the third device on, so that sums stay small.
func dtypeGiven(d, j int) int {
	if d > 1 {
		return 0
	}
	return (j + d) % 4
}

// dtypesPart takes each dtype to the devices, computes with it, and brings it back.
func dtypesPart(ctx context.Context, w *work) error {
	var has, lacks []string
	others := elsewhere
	if w.session.opts.Quick {
		others = quickly
	}
	for _, t := range slices.Concat(everywhere, others) {
		w.at("dtype %s", t)
		err := w.dtype(ctx, t)
		switch {
		case err == nil:
			has = append(has, t.String())
		case ctx.Err() != nil:
			return err
		case slices.Contains(everywhere, t):
			w.fail("%s: %v", t, err)
		default:
			lacks = append(lacks, t.String())
		}
	}
	w.fact("computes with", "%s", strings.Join(has, " "))
	if len(lacks) > 0 {
		w.fact("not available", "%s", strings.Join(lacks, " "))
	}
	return nil
}

func (w *work) dtype(ctx context.Context, t pjrt.DType) error {
	n := w.n()
	return w.session.answers(ctx, dtypeProgram(t, n), func(d, _ int) []byte {
		var values []int
		for j := range dtypeValues {
			values = append(values, dtypeGiven(d, j))
		}
		return numbers(t, values...)
	}, func(d, i int, data []byte) {
		what, dtype := [...]string{"doubled", "as F32", "added up"}[i], t
		var right []byte
		for j := range dtypeValues {
			switch v := dtypeGiven(d, j); i {
			case 0:
				right = append(right, total(t, 2*v, 2)...)
			case 1:
				if t == pjrt.Pred {
					v = min(v, 1)
				}
				dtype, right = pjrt.F32, appendNumber(right, pjrt.F32, v)
			case 2:
				sum := 0
				for d := range n {
					sum += dtypeGiven(d, j)
				}
				right = append(right, total(t, sum, n)...)
			}
		}
		w.exactly(fmt.Sprintf("%s %s, device %d", t, what, d), dtype, data, right)
	})
}
