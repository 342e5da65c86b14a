package memory

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Settings contains options of a step that cannot be derived from its program. Options that are
// already set are not suggested.
type Settings struct {
	// Microbatches is the number of microbatches of a training step, or 1 if the step does not
	// split its rows. It is 0 for a step without this option.
	Microbatches int
	// LeastRows is the minimum number of rows of a microbatch. The default is 1.
	LeastRows int
	// ShardedState contains the parts of the training state that the rules shard over the replicas,
	// for any trainable variable.
	ShardedState logical.StateParts
}

// Step describes a step that does not fit into the memory of a core.
type Step struct {
	// Slice is the name of the slice, such as "v5e:2x4". Devices is the number of its devices.
	Slice   string
	Devices int
	// Replicas and LogicalDevices are the numbers of the strategy.
	Replicas, LogicalDevices int
	// Module is the step as assembled by package lowering/spmd. It is nil for a program without a
	// traced step. Text is the StableHLO of the step.
	Module *spmd.Module
	Text   []byte
	// Global is set if the step is a program over the whole batch, which has no options of packages
	// strategy and remat.
	Global   bool
	Settings Settings
	Tensors  []Tensor
	// ArgumentBytes is the size of the variables and arguments on a core.
	ArgumentBytes int64
	Temporaries   []Temporary
}

// Suggestions returns changes that reduce the memory of the step, the most useful first. It omits
// changes that the step already contains, that do not apply to the step, or that cannot help.
func (s Step) Suggestions() (all []string) {
	f := newFeatures(s)
	for _, suggest := range suggestions {
		if text := suggest.text(f); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// features describes the options and features that a step already uses, and the sizes that limit
// them.
type features struct {
	Step
	policies      []spmd.Policy
	backward      bool     // it has a backward pass
	single        bool     // it has values of float32 or float64
	half          bool     // it has values of half precision
	ringAttention bool     // it has ring attention
	rows          []int    // the numbers of rows of a replica's arguments
	replicated    []string // large variables that are replicated on all logical devices and can be split
}

// suggestion is a possible change that reduces the memory of a step. text describes the change for
// a step, or returns "" if the change does not help.
type suggestion struct {
	name string
	text func(f *features) string
}

// suggestions are in display order.
var suggestions = []suggestion{
	{"state sharding", (*features).shardState},
	{"splits", (*features).splitVariables},
	{"ring attention", (*features).useRingAttention},
	{"rematerialization", (*features).rematerialize},
	{"host memory", (*features).offloadToHost},
	{"half precision", (*features).useHalfPrecision},
	{"microbatches", (*features).addMicrobatches},
	{"rows", (*features).reduceRows},
	{"slice", func(*features) string { return "take a larger slice" }},
}

func newFeatures(s Step) *features {
	contains := func(types ...string) bool {
		return slices.ContainsFunc(types, func(t string) bool { return bytes.Contains(s.Text, []byte(t)) })
	}
	f := &features{Step: s, single: contains("xf32>", "xf64>"), half: contains("xbf16>", "xf16>")}
	f.Devices = max(s.Devices, s.Replicas*s.LogicalDevices)
	if s.Module != nil {
		f.policies = s.Module.Policies
		for _, o := range s.Module.Origins {
			f.ringAttention = f.ringAttention || o != nil && strings.HasPrefix(o.Call, "ring.")
			f.backward = f.backward || o != nil && o.Pass == ir.Backward
		}
	}
	largestFirst := func(a, b Tensor) int { return cmp.Compare(b.BytesPerCore, a.BytesPerCore) }
	for _, t := range slices.SortedStableFunc(slices.Values(s.Tensors), largestFirst) {
		sharded := &f.Settings.ShardedState
		switch {
		case t.Role == "argument" && t.PerReplica && len(t.Shape) > 0:
			f.rows = append(f.rows, t.Shape[0])
		case t.Role != "variable":
		case t.ReplicaShard != nil && logical.OwnerOfState(t.Name, nil) != "":
			*sharded |= logical.OptimizerState
		case t.ReplicaShard != nil:
			*sharded |= logical.ShardParameters.Parts()
		case len(f.replicated) < 3 && f.canSplit(t):
			f.replicated = append(f.replicated, t.Name)
		}
	}
	return f
}

// canSplit reports whether a variable should be split over the logical devices: it is large, is
// replicated on all of them, and has a dimension that is divisible by their number.
func (f *features) canSplit(t Tensor) bool {
	return t.Copies == f.LogicalDevices && len(t.Shape) > 1 && logical.OwnerOfState(t.Name, nil) == "" &&
		20*t.BytesPerCore > f.ArgumentBytes &&
		slices.ContainsFunc(t.Shape, func(d int) bool { return d%f.LogicalDevices == 0 })
}

func (f *features) hasVariables() bool {
	return slices.ContainsFunc(f.Tensors, func(t Tensor) bool { return t.Role == "variable" })
}

func (f *features) shardState() string {
	switch {
	case f.Replicas < 2 || !f.hasVariables() || f.Settings.ShardedState.Contains(logical.Parameter):
		return ""
	case f.Settings.ShardedState.Contains(logical.Gradient):
		return "shard the parameters over the replicas too, not only the gradients and the state of the optimizer " +
			"(logical.MatchState with logical.ShardParameters)"
	case f.Settings.ShardedState.Contains(logical.OptimizerState):
		return "shard the parameters over the replicas too, not only the state of the optimizer (logical.MatchState with " +
			"logical.ShardParameters)"
	}
	return "shard the training state over the replicas (a rule with logical.MatchState)"
}

func (f *features) splitVariables() string {
	canDouble := 2*f.LogicalDevices <= f.Devices
	switch {
	case f.LogicalDevices > 1 && len(f.replicated) > 0:
		return fmt.Sprintf("split %s over the logical devices (Options.Variables)", strings.Join(f.replicated, ", "))
	case !canDouble:
		return ""
	case f.LogicalDevices > 1 || !f.hasVariables():
		return fmt.Sprintf("use more logical devices, such as %d instead of %d", 2*f.LogicalDevices, f.LogicalDevices)
	}
	names := "the largest variables"
	if len(f.replicated) > 0 {
		names = strings.Join(f.replicated, ", ")
	}
	return "use more logical devices, and rules that split " + names + " over them (Options.Variables)"
}

// useRingAttention suggests ring attention if there is a large temporary whose last two dimensions
// are both a number of tokens, as in attention scores.
func (f *features) useRingAttention() string {
	const manyTokens = 1024
	if f.ringAttention || f.Global || f.Devices < 2 {
		return ""
	}
	for _, t := range f.Temporaries {
		dims := slices.DeleteFunc(slices.Clone(t.Shape), func(d int) bool { return d < manyTokens })
		if len(dims) > 1 && len(t.Shape) > 2 && dims[len(dims)-1] == dims[len(dims)-2] {
			return fmt.Sprintf(
				"split the sequence over logical devices and use ring attention (package manual/ring), which does not store %s%s",
				t, lineText(t.Line))
		}
	}
	return ""
}

func (f *features) rematerialize() string {
	most := ""
	for _, p := range f.policies {
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
		return "save fewer values for the backward pass than " + most + ", as remat.Nothing() does"
	case f.backward && !f.Global && len(f.policies) == 0:
		return "compute layers again in the backward pass (package remat)"
	}
	return ""
}

// offloadToHost suggests storing the values that a loop over layers saves for its backward pass in
// host memory.
func (f *features) offloadToHost() string {
	onDevices := slices.ContainsFunc(f.policies, func(p spmd.Policy) bool { return p.IsLoop && !p.OnHost })
	if _, _, err := system.ParseSlices(f.Slice); err != nil || !onDevices { // not a slice of TPUs
		return ""
	}
	return "keep the values of layer loops for the backward pass in the host's memory (remat.Policy.OnHost)"
}

func (f *features) useHalfPrecision() string {
	switch {
	case f.half || !f.single:
		return ""
	case f.Global:
		return "compute in bfloat16"
	}
	return "compute in bfloat16 (package precision)"
}

func (f *features) addMicrobatches() string {
	now := f.Settings.Microbatches
	next := f.nextMicrobatches()
	if next <= now {
		return ""
	}
	return fmt.Sprintf("take %d microbatches instead of %d (train.Options.Accumulate): a replica has %d rows", next, now,
		slices.Max(f.rows))
}

// nextMicrobatches returns the next larger number of microbatches by which the number of rows is
// divisible, or the maximum number of microbatches. It returns 0 if the number cannot be changed.
func (f *features) nextMicrobatches() int {
	if f.Settings.Microbatches == 0 || len(f.rows) == 0 {
		return 0
	}
	common := 0
	for _, n := range f.rows {
		for n != 0 {
			common, n = n, common%n
		}
	}
	least := max(f.Settings.LeastRows, 1)
	most := common // arguments with different numbers of rows are not padded
	if common == slices.Max(f.rows) {
		most = (common + least - 1) / least
	}
	for n := 2 * f.Settings.Microbatches; n < most; n++ {
		if common%n == 0 {
			return n
		}
	}
	return most
}

// reduceRows suggests fewer rows, unless each microbatch already has the minimum number of rows.
func (f *features) reduceRows() string {
	if len(f.rows) == 0 || slices.Max(f.rows) <= max(f.Settings.Microbatches, 1)*max(f.Settings.LeastRows, 1) {
		return ""
	}
	return fmt.Sprintf("take smaller batches: a replica has %d rows", slices.Max(f.rows))
}

// lineText returns the word "of" and the line, for the end of a sentence, or "" if l is nil.
func lineText(l *SourceLine) string {
	if l == nil {
		return ""
	}
	return " of " + l.String()
}
