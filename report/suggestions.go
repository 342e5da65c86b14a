package report

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// usage describes the options and features that a step that does not fit already uses.
type usage struct {
	*Report
	module  *spmd.Module // not nil
	half    bool         // there are values of half precision
	ring    bool         // there is ring attention
	rows    int          // the largest number of rows of a replica's argument
	whole   []string     // large variables that each logical device has a copy of
	sharing logical.StateSharding
}

// suggestions are the changes that make a step smaller, in the order in which they are shown. Each returns
// a text, or "" if the change is made already or does not apply. A new option of the library is one more
// entry.
var suggestions = []func(u *usage) string{
	(*usage).shareState, (*usage).splitVariables, (*usage).ringAttention, (*usage).keepLess, (*usage).halfPrecision, (*usage).fewerRows,
	func(*usage) string { return "take a larger slice" },
}

// addSuggestions adds suggestions to the report of a step that does not fit. module is nil for a program
// from elsewhere.
func (r *Report) addSuggestions(m *spmd.Module, text []byte) {
	if r.Memory.Verdict != TooLarge {
		return
	}
	u := newUsage(r, m, text)
	for _, suggest := range suggestions {
		if text := suggest(u); text != "" {
			r.Suggestions = append(r.Suggestions, text)
		}
	}
}

func newUsage(r *Report, m *spmd.Module, text []byte) *usage {
	if m == nil {
		m = &spmd.Module{}
	}
	u := &usage{Report: r, module: m, half: bytes.Contains(text, []byte("xbf16>")) || bytes.Contains(text, []byte("xf16>"))}
	u.ring = slices.ContainsFunc(m.Origins, func(o *ir.Origin) bool { return o != nil && strings.HasPrefix(o.Call, "ring.") })
	state, parameters := false, false
	for _, t := range r.Largest("") {
		switch {
		case t.Role == "argument" && t.PerReplica && len(t.Shape) > 0:
			u.rows = max(u.rows, t.Shape[0])
		case t.Role != "variable":
		case t.Cut != nil && logical.StateOf(t.Name, nil) != "":
			state = true
		case t.Cut != nil:
			parameters = true
		case t.Copies == r.LogicalDevices && len(t.Shape) > 1 && logical.StateOf(t.Name, nil) == "" && len(u.whole) < 3 && 20*t.BytesPerCore > r.Memory.Arguments:
			u.whole = append(u.whole, t.Name)
		}
	}
	switch {
	case parameters:
		u.sharing = logical.ShardParameters
	case state:
		u.sharing = logical.ShardOptimizer
	}
	return u
}

func (u *usage) variables() bool {
	return slices.ContainsFunc(u.Tensors, func(t Tensor) bool { return t.Role == "variable" })
}

func (u *usage) shareState() string {
	switch {
	case u.Replicas < 2 || !u.variables() || u.sharing == logical.ShardParameters:
		return ""
	case u.sharing == logical.ShardOptimizer:
		return "share out the parameters among the replicas too, and not only the state of the optimizer (logical.Share with logical.ShardParameters)"
	}
	return "share the state of training out among the replicas (a rule by logical.Share)"
}

func (u *usage) splitVariables() string {
	switch {
	case u.LogicalDevices == 1:
		names := "the largest variables"
		if len(u.whole) > 0 {
			names = strings.Join(u.whole, ", ")
		}
		return "use more logical devices, and rules that split " + names + " over them (Options.Variables)"
	case len(u.whole) > 0:
		return fmt.Sprintf("split %s over the logical devices (Options.Variables)", strings.Join(u.whole, ", "))
	case 2*u.LogicalDevices <= u.Replicas*u.LogicalDevices:
		return fmt.Sprintf("use more logical devices, such as %d instead of %d", 2*u.LogicalDevices, u.LogicalDevices)
	}
	return ""
}

// ringAttention finds a large temporary whose last two dimensions are those of scores, tokens by tokens.
func (u *usage) ringAttention() string {
	const manyTokens = 1024
	for _, t := range u.Temporaries {
		dims := slices.DeleteFunc(slices.Clone(t.Shape), func(d int) bool { return d < manyTokens })
		if !u.ring && len(dims) > 1 && len(t.Shape) > 2 && dims[len(dims)-1] == dims[len(dims)-2] {
			return fmt.Sprintf("split the sequence over logical devices and use ring attention (package manual/ring), which does not hold %s%s", t, t.at())
		}
	}
	return ""
}

func (u *usage) keepLess() string {
	keeps, most := false, ""
	for _, k := range u.module.Keeps {
		keeps = keeps || !k.Some || k.Products || len(k.Names) > 0
		switch {
		case !k.Some:
			most = "all values"
		case k.Products && most == "":
			most = "the products"
		}
	}
	if most == "" {
		most = "values by name"
	}
	switch {
	case !u.variables():
		return ""
	case len(u.module.Keeps) == 0:
		return "compute layers again in the backward pass (package remat)"
	case keeps:
		return "keep less for the backward pass than " + most + ", as remat.Nothing() does"
	}
	return ""
}

func (u *usage) halfPrecision() string {
	if u.half {
		return ""
	}
	return "compute in bfloat16 (package precision)"
}

func (u *usage) fewerRows() string {
	if u.rows < 2 {
		return ""
	}
	return fmt.Sprintf("take smaller batches, or more microbatches: a replica has %d rows", u.rows)
}

// String is the value as "f32[4096 128]".
func (t Temporary) String() string { return fmt.Sprintf("%s%v", t.DType, t.Shape) }

// at is the line of Go in words, if it is known.
func (t Temporary) at() string {
	if t.Line == nil {
		return ""
	}
	return " of " + t.Line.String()
}

// The allocations that the compiler of TPUs lists in the refusal of a program.
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
					_, _ = fmt.Sscan(dim, &n) // the expression lets digits through only
					t.Shape = append(t.Shape, n)
				}
			}
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b Temporary) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}

// writtenResult matches an operation whose result compilers write to the main memory, in the StableHLO of a
// step: the dimensions and the dtype of its last result, its name and the operation.
var writtenResult = regexp.MustCompile(`tensor<((?:[0-9]{1,15}x)+)([a-z0-9]+)>\)? loc\("((dot_general|convolution|gather|scatter|concatenate|sort)[a-z_]*` + ir.Numbered + `[0-9]+)"\)`)

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

// parseWritten reads dimensions such as "8x16x" and a dtype of StableHLO.
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
		_, _ = fmt.Sscan(dim, &n) // the expression lets digits through only
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

// lineOf is the line of an origin, or nil.
func lineOf(o *ir.Origin) *Line {
	if o == nil {
		return nil
	}
	line := lineAt(o)
	return &line
}
