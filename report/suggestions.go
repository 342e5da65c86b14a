package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Settings are options of a step that its program does not contain. Options that are set are not
// suggested.
type Settings struct {
	// Microbatches is the number of microbatches of a training step, or 1 if the step does not
	// split its rows. It is 0 for a step without this option.
	Microbatches int
	// LeastRows is the minimum number of rows of a microbatch. The default is 1.
	LeastRows int
	// StateSharding is the highest degree to which the rules shard any trainable variable over the
	// replicas.
	StateSharding logical.StateSharding
}

// usage describes the options and features that a step already uses, and the sizes that limit them.
type usage struct {
	*Report
	Settings
	module   *spmd.Module // not nil
	global   bool         // a program over the whole batch, which has no options of packages strategy and remat
	backward bool         // it has a backward pass
	single   bool         // it has values of float32 or float64
	half     bool         // it has values of half precision
	ring     bool         // it has ring attention
	rows     []int        // the numbers of rows of a replica's arguments
	whole    []string     // large variables that are replicated on all logical devices and can be split
	devices  int          // devices of the slice
}

// suggestion is a change that reduces the memory of a step. text returns "" if the change is
// already made, does not apply or cannot help.
type suggestion struct {
	name string
	text func(u *usage) string
}

// suggestions are in display order.
var suggestions = []suggestion{
	{"state sharding", (*usage).shareState},
	{"splits", (*usage).splitVariables},
	{"ring attention", (*usage).ringAttention},
	{"rematerialization", (*usage).keepLess},
	{"host memory", (*usage).keepOnHost},
	{"half precision", (*usage).halfPrecision},
	{"microbatches", (*usage).moreMicrobatches},
	{"rows", (*usage).fewerRows},
	{"slice", func(*usage) string { return "take a larger slice" }},
}

// addSuggestions adds suggestions to the report of a step that does not fit. in.Module is nil for a
// program without a traced step.
func (r *Report) addSuggestions(in Input) {
	if r.Memory.Verdict != TooLarge {
		return
	}
	u := newUsage(r, in)
	for _, s := range suggestions {
		if text := s.text(u); text != "" {
			r.Suggestions = append(r.Suggestions, text)
		}
	}
}

func newUsage(r *Report, in Input) *usage {
	contains := func(types ...string) bool {
		return slices.ContainsFunc(types, func(t string) bool { return bytes.Contains(in.Text, []byte(t)) })
	}
	u := &usage{
		Report: r, Settings: in.Settings, module: in.Module, global: in.Global, devices: max(r.Target.Devices, r.Replicas*r.LogicalDevices),
		single: contains("xf32>", "xf64>"), half: contains("xbf16>", "xf16>"),
	}
	if u.module == nil {
		u.module = &spmd.Module{}
	}
	for _, o := range u.module.Origins {
		u.ring = u.ring || o != nil && strings.HasPrefix(o.Call, "ring.")
		u.backward = u.backward || o != nil && o.Pass == ir.Backward
	}
	for _, t := range r.Largest("") {
		switch {
		case t.Role == "argument" && t.PerReplica && len(t.Shape) > 0:
			u.rows = append(u.rows, t.Shape[0])
		case t.Role != "variable":
		case t.Cut != nil && logical.OwnerOfState(t.Name, nil) != "":
			u.StateSharding = max(u.StateSharding, logical.ShardOptimizer)
		case t.Cut != nil:
			u.StateSharding = logical.ShardParameters
		case len(u.whole) < 3 && u.canSplit(t):
			u.whole = append(u.whole, t.Name)
		}
	}
	return u
}

// canSplit reports whether a variable is large, replicated on all logical devices, and has a
// dimension that the number of logical devices divides.
func (u *usage) canSplit(t Tensor) bool {
	return t.Copies == u.LogicalDevices && len(t.Shape) > 1 && logical.OwnerOfState(t.Name, nil) == "" && 20*t.BytesPerCore > u.Memory.Arguments &&
		slices.ContainsFunc(t.Shape, func(d int) bool { return d%u.LogicalDevices == 0 })
}

func (u *usage) variables() bool {
	return slices.ContainsFunc(u.Tensors, func(t Tensor) bool { return t.Role == "variable" })
}

func (u *usage) shareState() string {
	switch {
	case u.Replicas < 2 || !u.variables() || u.StateSharding == logical.ShardParameters:
		return ""
	case u.StateSharding == logical.ShardGradients:
		return "share out the parameters among the replicas too, and not only the gradients and the state of the optimizer (logical.MatchState with logical.ShardParameters)"
	case u.StateSharding == logical.ShardOptimizer:
		return "share out the parameters among the replicas too, and not only the state of the optimizer (logical.MatchState with logical.ShardParameters)"
	}
	return "share the state of training out among the replicas (a rule by logical.MatchState)"
}

func (u *usage) splitVariables() string {
	canDouble := 2*u.LogicalDevices <= u.devices
	switch {
	case u.LogicalDevices > 1 && len(u.whole) > 0:
		return fmt.Sprintf("split %s over the logical devices (Options.Variables)", strings.Join(u.whole, ", "))
	case !canDouble:
		return ""
	case u.LogicalDevices > 1 || !u.variables():
		return fmt.Sprintf("use more logical devices, such as %d instead of %d", 2*u.LogicalDevices, u.LogicalDevices)
	}
	names := "the largest variables"
	if len(u.whole) > 0 {
		names = strings.Join(u.whole, ", ")
	}
	return "use more logical devices, and rules that split " + names + " over them (Options.Variables)"
}

// ringAttention finds a large temporary whose last two dimensions are those of attention scores,
// tokens by tokens.
func (u *usage) ringAttention() string {
	const manyTokens = 1024
	if u.ring || u.global || u.devices < 2 {
		return ""
	}
	for _, t := range u.Temporaries {
		dims := slices.DeleteFunc(slices.Clone(t.Shape), func(d int) bool { return d < manyTokens })
		if len(dims) > 1 && len(t.Shape) > 2 && dims[len(dims)-1] == dims[len(dims)-2] {
			return fmt.Sprintf("split the sequence over logical devices and use ring attention (package manual/ring), which does not hold %s%s", t, t.at())
		}
	}
	return ""
}

func (u *usage) keepLess() string {
	most := ""
	for _, p := range u.module.Policies {
		switch {
		case p.OnHost: // its values use no device memory
		case !p.Selective:
			most = "all values"
		case p.Products && most == "":
			most = "the products"
		case len(p.Names) > 0 && most == "":
			most = "values by name"
		}
	}
	switch {
	case most != "":
		return "keep less for the backward pass than " + most + ", as remat.Nothing() does"
	case u.backward && !u.global && len(u.module.Policies) == 0:
		return "compute layers again in the backward pass (package remat)"
	}
	return ""
}

// keepOnHost suggests host memory for the kept values of layer loops. Blocks do not support it.
func (u *usage) keepOnHost() string {
	onDevices := slices.ContainsFunc(u.module.Policies, func(p spmd.Policy) bool { return p.IsLoop && !p.OnHost })
	if _, isTPU := newMachine(u.Target.Name); !isTPU || !onDevices {
		return ""
	}
	return "keep the values of layer loops for the backward pass in the host's memory (remat.Policy.OnHost)"
}

func (u *usage) halfPrecision() string {
	switch {
	case u.half || !u.single:
		return ""
	case u.global:
		return "compute in bfloat16"
	}
	return "compute in bfloat16 (package precision)"
}

func (u *usage) moreMicrobatches() string {
	now := u.Microbatches
	next := u.nextMicrobatches()
	if next <= now {
		return ""
	}
	return fmt.Sprintf("take %d microbatches instead of %d (train.Options.Accumulate): a replica has %d rows", next, now, slices.Max(u.rows))
}

// nextMicrobatches returns the next larger number of microbatches that divides the rows, or the
// maximum possible number. It returns 0 if there is none.
func (u *usage) nextMicrobatches() int {
	if u.Microbatches == 0 || len(u.rows) == 0 {
		return 0
	}
	common := 0
	for _, n := range u.rows {
		for n != 0 {
			common, n = n, common%n
		}
	}
	least := max(u.LeastRows, 1)
	most := common // arguments with different numbers of rows are not padded
	if common == slices.Max(u.rows) {
		most = (common + least - 1) / least
	}
	for n := 2 * u.Microbatches; n < most; n++ {
		if common%n == 0 {
			return n
		}
	}
	return most
}

// fewerRows suggests fewer rows, unless the microbatches are already minimal.
func (u *usage) fewerRows() string {
	if len(u.rows) == 0 || slices.Max(u.rows) <= max(u.Microbatches, 1)*max(u.LeastRows, 1) {
		return ""
	}
	return fmt.Sprintf("take smaller batches: a replica has %d rows", slices.Max(u.rows))
}

// String returns the value as "f32[4096 128]".
func (t Temporary) String() string { return fmt.Sprintf("%s%v", t.DType, t.Shape) }

// at describes the line of Go, if it is known.
func (t Temporary) at() string {
	if t.Line == nil {
		return ""
	}
	return " of " + t.Line.String()
}

// lineOf is the line of an origin, or nil.
func lineOf(o *ir.Origin) *Line {
	if o == nil {
		return nil
	}
	line := lineAt(o)
	return &line
}
