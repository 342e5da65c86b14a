package report

import (
	"regexp"
	"strconv"
	"strings"
)

// The two forms in which StableHLO writes a matrix product and a convolution: generic, as this
// module's lowering does, and pretty.
var (
	genericDot = regexp.MustCompile(`(?s)"stablehlo\.dot_general"\([^)]*\)\s*[<{].*?lhs_contracting_dimensions = \[([0-9, ]*)\].*?: \((tensor<[^>]*>), tensor<[^>]*>\) -> (tensor<[^>]*>)`)
	prettyDot  = regexp.MustCompile(`stablehlo\.dot_general %[^\n]*?contracting_dims = \[([0-9, ]*)\] x [^\n]*: \((tensor<[^>]*>), tensor<[^>]*>\) -> (tensor<[^>]*>)`)
	plainDot   = regexp.MustCompile(`stablehlo\.dot %[^\n]*: \((tensor<[^>]*>), tensor<[^>]*>\) -> (tensor<[^>]*>)`)
	convolve   = regexp.MustCompile(`(?s)stablehlo\.convolution"?\(.*?x\[([0-9a-z, ]*)\]\s*->.*?: \(tensor<[^>]*>, (tensor<[^>]*>)\) -> (tensor<[^>]*>)`)
)

// modelFLOPs counts the operations of the matrix products and convolutions of a StableHLO text, a
// multiplication and an addition as two, as often as they run, and the loops whose number of rounds
// is not known, which count as one.
func modelFLOPs(text []byte) (flops float64, unknown int) {
	structure := parseText(string(text))
	for _, form := range []*regexp.Regexp{genericDot, prettyDot} {
		for _, m := range form.FindAllSubmatchIndex(text, -1) {
			lhs, out := tensorDims(string(text[m[4]:m[5]])), tensorDims(string(text[m[6]:m[7]]))
			products := 2 * elements(out)
			for _, dim := range numbers(string(text[m[2]:m[3]])) {
				if dim < len(lhs) {
					products *= float64(lhs[dim])
				}
			}
			flops += products * structure.times(m[0])
		}
	}
	for _, m := range plainDot.FindAllSubmatchIndex(text, -1) {
		lhs, out := tensorDims(string(text[m[2]:m[3]])), tensorDims(string(text[m[4]:m[5]]))
		if len(lhs) > 0 {
			flops += 2 * elements(out) * float64(lhs[len(lhs)-1]) * structure.times(m[0])
		}
	}
	for _, m := range convolve.FindAllSubmatchIndex(text, -1) {
		kernel, out := tensorDims(string(text[m[4]:m[5]])), tensorDims(string(text[m[6]:m[7]]))
		products := 2 * elements(out) * elements(kernel)
		for i, role := range strings.Split(string(text[m[2]:m[3]]), ",") {
			if strings.TrimSpace(role) == "o" && i < len(kernel) && kernel[i] > 0 {
				products /= float64(kernel[i])
			}
		}
		flops += products * structure.times(m[0])
	}
	return flops, structure.unknown
}

// tensorDims reads the dimensions of a type such as tensor<8x4xf32>.
func tensorDims(typ string) []int {
	var dims []int
	for rest := strings.TrimPrefix(typ, "tensor<"); ; {
		dim, after, ok := strings.Cut(rest, "x")
		n, err := strconv.Atoi(dim)
		if !ok || err != nil || n < 0 {
			return dims
		}
		dims, rest = append(dims, n), after
	}
}

func elements(dims []int) float64 {
	n := 1.0
	for _, d := range dims {
		n *= float64(d)
	}
	return n
}

func numbers(list string) []int {
	var out []int
	for _, text := range strings.Split(list, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	return out
}
