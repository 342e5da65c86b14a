package accept

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// meshSizes returns the sizes of the meshes to test on n devices. Each size consists of the number
// of replicas and the number of logical devices per replica.
func meshSizes(n int) (all [][2]int) {
	for _, p := range []int{1, 2, 4} {
		if n%p == 0 && n/p > 0 && p <= n {
			all = append(all, [2]int{n / p, p})
		}
	}
	return all
}

// grouping divides the devices into groups of equal size, for a collective that runs within each
// group.
type grouping struct {
	name   string
	groups [][]int
}

// deviceGroupings returns the device groups to test: one group of all n devices and, if n is even and at
// least 4, two groups of every second device, pairs of adjacent devices, and pairs of distant devices.
func deviceGroupings(n int) []grouping {
	all := []grouping{{"all devices", [][]int{sequence(n)}}}
	if n%2 != 0 || n < 4 {
		return all
	}
	replica, logical, far := make([][]int, 2), [][]int{}, [][]int{}
	for i := range n / 2 {
		replica[0], replica[1] = append(replica[0], 2*i), append(replica[1], 2*i+1)
		logical = append(logical, []int{2 * i, 2*i + 1})
		far = append(far, []int{n - 1 - i, i}) // groups need not list devices in ascending order
	}
	return append(all, grouping{"replicas", replica}, grouping{"logical devices", logical}, grouping{"groups", far})
}

// collectiveKinds lists the tested collectives. all_reduce_max is an all_reduce that computes the maximum.
var collectiveKinds = []string{"all_reduce", "all_reduce_max", "all_gather", "reduce_scatter", "all_to_all",
	"collective_permute"}

// collectiveText returns the StableHLO text of a collective. Its input is %x0, and its result is %r
// followed by the index i.
func collectiveText(kind string, i int, in, out tensorType, groups [][]int) string {
	var rows []string
	pairs := [][]int{}
	for _, g := range groups {
		rows = append(rows, strings.ReplaceAll(fmt.Sprint(g), " ", ", "))
		for k := range g {
			pairs = append(pairs, []int{g[k], g[(k+1)%len(g)]})
		}
	}
	groupsText := fmt.Sprintf("replica_groups = dense<[%s]> : tensor<%dx%dxi64>", strings.Join(rows, ", "), len(groups),
		len(groups[0]))
	reduction := "add"
	if kind == "all_reduce_max" {
		kind, reduction = "all_reduce", "maximum"
	}
	if in.dtype == pjrt.Pred {
		reduction = "or"
	}
	element := tensorType{dtype: in.dtype}
	region := fmt.Sprintf("({\n    ^bb0(%%a%[1]d: %[2]s, %%b%[1]d: %[2]s):\n      %%s%[1]d = stablehlo.%[3]s %%a%[1]d, "+
		"%%b%[1]d : %[2]s\n      stablehlo.return %%s%[1]d : %[2]s\n    }) ",
		i, element, reduction)
	attributes := groupsText
	switch kind {
	case "all_gather":
		region, attributes = "", "all_gather_dim = 0 : i64, "+groupsText
	case "reduce_scatter":
		attributes = "scatter_dimension = 0 : i64, " + groupsText
	case "all_to_all":
		region, attributes = "",
			fmt.Sprintf("split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = %d : i64, %s", len(groups[0]),
				groupsText)
	case "collective_permute":
		var to []string
		for _, p := range pairs {
			to = append(to, strings.ReplaceAll(fmt.Sprint(p), " ", ", "))
		}
		region, attributes = "", fmt.Sprintf("source_target_pairs = dense<[%s]> : tensor<%dx2xi64>", strings.Join(to, ", "),
			len(pairs))
	}
	return fmt.Sprintf("    %%r%d = \"stablehlo.%s\"(%%x0) %s{%s} : (%s) -> %s\n", i, kind, region, attributes, in, out)
}

// collectiveProgram returns a program that runs collectives over groups of devices.
func collectiveProgram(g grouping, dtype pjrt.DType, kinds []string) rawProgram {
	size := len(g.groups[0])
	in := tensorType{dtype, []int{2 * size}}
	p := rawProgram{name: fmt.Sprintf("%s over %s of %s", strings.Join(kinds, " and "), g.name, dtype),
		inputs: []tensorType{in}}
	for i, kind := range kinds {
		out := in
		switch kind {
		case "all_gather":
			out.dims = []int{2 * size * size}
		case "reduce_scatter":
			out.dims = []int{2}
		}
		p.outputs = append(p.outputs, out)
		p.body += collectiveText(kind, i, in, out, g.groups)
	}
	return p
}

// collectiveInput returns element j of device d's input, a small integer. All sums are exact.
func collectiveInput(d, j int) int { return (5*d + 3*j) % 7 }

// groupOf returns the group that contains a device, and the device's index in the group.
func (g grouping) groupOf(device int) (members []int, at int) {
	for _, members := range g.groups {
		if at := slices.Index(members, device); at >= 0 {
			return members, at
		}
	}
	return nil, -1
}

// expectedCollective returns the expected result of the group member with the given index. The
// function x returns element j of the input of member m. Each input has 2*size elements.
func expectedCollective(kind string, size, at int, x func(member, j int) int) (out []int) {
	take := func(member, from, to int) {
		for j := from; j < to; j++ {
			out = append(out, x(member, j))
		}
	}
	switch kind {
	case "all_gather":
		for m := range size {
			take(m, 0, 2*size)
		}
	case "all_to_all":
		for m := range size {
			take(m, 2*at, 2*at+2)
		}
	case "collective_permute":
		take((at+size-1)%size, 0, 2*size)
	case "broadcast": // from the last member
		take(size-1, 0, 2*size)
	default:
		for j := range 2 * size {
			sum, most := 0, 0
			for m := range size {
				sum, most = sum+x(m, j), max(most, x(m, j))
			}
			if kind == "all_reduce_max" {
				sum = most
			}
			out = append(out, sum)
		}
	}
	if kind == "reduce_scatter" {
		return out[2*at : 2*at+2]
	}
	return out
}

// checkAllCollectives tests each collective over each grouping, and the collectives of a strategy.
func checkAllCollectives(ctx context.Context, w *partRun) error {
	for _, g := range deviceGroupings(w.numDevices()) {
		for _, dtype := range []pjrt.DType{pjrt.S32, pjrt.F32} {
			if err := w.checkCollectives(ctx, g, dtype, collectiveKinds); err == nil {
				continue
			} else if ctx.Err() != nil {
				return err
			}
			for _, kind := range collectiveKinds { // find the failing collective
				if err := w.checkCollectives(ctx, g, dtype, []string{kind}); err != nil {
					w.addFailure("%s over %s of %s: %v", kind, g.name, dtype, err)
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
		}
	}
	return w.runCases(ctx, collectiveCases(w.numDevices()))
}

func (w *partRun) checkCollectives(ctx context.Context, g grouping, dtype pjrt.DType, kinds []string) error {
	p := collectiveProgram(g, dtype, kinds)
	w.setActivity("%s", p.name)
	return w.session.runRaw(ctx, p, func(d, _ int) []byte {
		var values []int
		for j := range p.inputs[0].dims[0] {
			values = append(values, collectiveInput(d, j))
		}
		return encodeNumbers(dtype, values...)
	}, func(d, i int, data []byte) {
		members, at := g.groupOf(d)
		right := expectedCollective(kinds[i], len(members), at, func(m, j int) int { return collectiveInput(members[m], j) })
		w.compareBytes(fmt.Sprintf("%s over %s of %s, device %d", kinds[i], g.name, dtype, d), dtype, data,
			encodeNumbers(dtype, right...))
	})
}
