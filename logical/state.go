package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// StateSharding selects the training state of a variable that is sharded over the replicas instead
// of being stored on every replica. It affects the memory and the communication of a training step,
// but not its results: values are equal up to rounding, checkpoints contain complete values, and
// variables are read and written as complete values.
//
// Consider R replicas and a variable of b bytes whose optimizer keeps k tensors of the same size (2
// for Adam). Without sharding, a device stores b bytes for the variable and k*b for the optimizer
// state, divided by the split over logical devices. The all-reduce of the gradient sends 2(R-1)/R*b
// bytes per device. Each constant documents how it changes these numbers for a step of package
// strategy. In package gomlx the partitioner determines the communication, and gradients are stored
// only if GoMLX's trainer accumulates them.
//
// In package strategy a tensor is sharded along its first dimension that is divisible by R and not
// split over logical devices. If there is none, it is sharded along the largest dimension that is
// not split, padded with zeros. The layer dimension of a stack (package loop) is not sharded if the
// first step that uses the stack contains the loop. Tensors in which every dimension is split,
// integers, booleans and variables that are not trained are not sharded. In package gomlx every
// variable is sharded along the largest dimension that is divisible by R.
type StateSharding int

const (
	// ShardNothing stores all training state on every replica, as TensorFlow does.
	ShardNothing StateSharding = iota + 1
	// ShardOptimizer shards the optimizer state (ZeRO-1). A device stores b + k*b/R bytes. Each
	// replica updates its shard of the variable, and an all-gather of the shards sends (R-1)/R*b
	// additional bytes.
	ShardOptimizer
	// ShardGradients shards the optimizer state and the gradient (ZeRO-2). A device stores b +
	// k*b/R bytes. The gradient is reduced by a reduce-scatter, so no replica stores the complete
	// gradient. Together with the all-gather, a step sends 2(R-1)/R*b bytes, as much as without
	// sharding.
	ShardGradients
	// ShardParameters also shards the variable (ZeRO-3, FSDP) if it is a trainable variable of a
	// store. A device stores (1+k)*b/R bytes. A step gathers the variable where it is read, in
	// training and in inference, but does not gather the updated value. Variables that belong to no
	// store are not sharded.
	ShardParameters
)

// StateParts is a set of parts of a variable's training state.
type StateParts uint8

const (
	// OptimizerState are the tensors that the optimizer keeps for the variable, such as Adam's
	// moments.
	OptimizerState StateParts = 1 << iota
	// Gradient is the gradient of the variable.
	Gradient
	// Parameter is the variable itself.
	Parameter
)

// Contains reports whether p contains all of the given parts.
func (p StateParts) Contains(parts StateParts) bool { return p&parts == parts }

// stateShardings contains, for each constant, its name in flags and rules files, and the parts of
// the training state that it shards.
var stateShardings = []struct {
	name  string
	parts StateParts
}{
	ShardNothing:    {"none", 0},
	ShardOptimizer:  {"optimizer", OptimizerState},
	ShardGradients:  {"gradients", OptimizerState | Gradient},
	ShardParameters: {"parameters", OptimizerState | Gradient | Parameter},
}

func (s StateSharding) isDefined() bool { return s > 0 && int(s) < len(stateShardings) }

// Parts returns the parts of the training state that s shards. It returns the empty set for an
// undefined value.
func (s StateSharding) Parts() StateParts {
	if !s.isDefined() {
		return 0
	}
	return stateShardings[s].parts
}

// String returns the name of s: "none", "optimizer", "gradients" or "parameters".
func (s StateSharding) String() string {
	if !s.isDefined() {
		return enum.Name(s)
	}
	return stateShardings[s].name
}

// StateShardings returns all constants, in the order of their declarations.
func StateShardings() []StateSharding {
	all := make([]StateSharding, 0, len(stateShardings)-1)
	for s := ShardNothing; s.isDefined(); s++ {
		all = append(all, s)
	}
	return all
}

// StateShardingNames returns the names of all constants, in the order of their declarations.
func StateShardingNames() []string {
	all := StateShardings()
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.String()
	}
	return names
}

// ParseStateSharding returns the constant with the given name (see [StateSharding.String]). Any
// other name is an error of kind ValueError.
func ParseStateSharding(name string) (StateSharding, error) {
	names := StateShardingNames()
	if i := slices.Index(names, name); i >= 0 {
		return ShardNothing + StateSharding(i), nil
	}
	return 0, &errkind.Fault{Op: "logical: state sharding", Reason: fmt.Sprintf("unknown name %q", name),
		Hint: "use one of " + strings.Join(names, ", "), Class: errkind.ValueError}
}

// momentSuffixes are the suffixes of the state variables of GoMLX's Adam, AdamW, Adamax and
// RMSProp.
var momentSuffixes = []string{"_1st_moment", "_2nd_moment"}

// gradientScope is the scope in which GoMLX's trainer accumulates gradients.
const gradientScope = "acc_grads"

// OwnerOfState returns the path of the variable whose training state is stored at path, or "".
// Optimizers store the state of a variable below a path that contains the path of the variable,
// such as "/AdamOptimizer/hidden/weights_1st_moment". The function variable reports whether a path
// is a variable. OwnerOfState returns the longest part of path that is a variable, starts at a
// slash, and is not at the beginning of path.
//
// If variable is nil, OwnerOfState recognizes names that GoMLX uses: the moments of optimizers, in
// any scope, and accumulated gradients such as "/acc_grads/hidden/weights".
func OwnerOfState(path string, variable func(path string) bool) (owner string) {
	if variable == nil {
		owner, _ = stateByName(path)
		return owner
	}
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		for end := len(path); end > i+max(1, len(owner)); end-- {
			if variable(path[i:end]) {
				owner = path[i:end]
				break
			}
		}
	}
	return owner
}

// stateByName infers from a path whether it belongs to training state. It returns the variable to
// which the state belongs, or "", and the part of the training state that is stored at the path.
func stateByName(path string) (owner string, part StateParts) {
	scope, rest, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !found || !strings.HasPrefix(path, "/") || rest == "" {
		return "", Parameter
	}
	for _, end := range momentSuffixes {
		if owner, ok := strings.CutSuffix(rest, end); ok && owner != "" && !strings.HasSuffix(owner, "/") {
			return "/" + owner, OptimizerState
		}
	}
	if scope == gradientScope {
		return "/" + rest, Gradient
	}
	return "", Parameter
}
