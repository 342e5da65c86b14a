package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// StateSharding says what of the training of a variable the replicas share out among themselves,
// instead of each having all of it. It changes what the devices store and what a training step moves,
// not what the step computes: the values are those of whole state up to rounding, checkpoints hold
// the whole values, and reads and writes of variables see them.
//
// With R replicas, of a variable of b bytes whose optimizer keeps k tensors of its size (2 for
// Adam), a device stores b of the variable and k*b of the state, over its logical split. It sends
// 2(R-1)/R*b for the all-reduce of the gradient. The constants say what they change of this in a step
// of package strategy. In the global view of package gomlx the partitioner chooses what is sent, and
// a gradient is stored only where GoMLX's trainer adds gradients up.
//
// A step of package strategy cuts a tensor along its first dimension that no annotation splits over
// logical devices and that R divides, otherwise along its largest such dimension, which is padded
// with zeros on the devices. The dimension of the layers of a package loop's stack is not cut, if the
// first step that uses the stack has the loop. A tensor stays whole of which every dimension is
// split, and so do integers, booleans and variables that are not trained. The global view knows
// neither stacks nor training: it cuts every variable, along the largest dimension that R divides.
type StateSharding int

const (
	// ShardNothing gives each replica all of it: TensorFlow's way.
	ShardNothing StateSharding = iota + 1
	// ShardOptimizer shares out the optimizer's state (ZeRO-1). A device stores b + k*b/R. Each
	// replica updates its part of the variable and an all-gather brings the parts together, which
	// sends (R-1)/R*b more.
	ShardOptimizer
	// ShardGradients shares out the gradient as well (ZeRO-2). A device stores b + k*b/R. The
	// gradient comes by a reduce-scatter and the step never has the whole of its mean: with the
	// all-gather it sends 2(R-1)/R*b, as much as a step without shards.
	ShardGradients
	// ShardParameters shares out the variable as well (ZeRO-3, FSDP), if it is a trainable one of a
	// store. A device stores (1+k)*b/R. A step gathers the variable where it reads it, and never the
	// updated one. A step without training gathers it too. Variables that belong to no store stay
	// whole.
	ShardParameters
)

// stateNames are the names of the constants on command lines and in files of rules.
var stateNames = []string{"", "none", "optimizer", "gradients", "parameters"}

// String returns "none", "optimizer", "gradients" or "parameters".
func (s StateSharding) String() string {
	return enum.Name(s, stateNames...)
}

// ParseStateSharding returns the constant of a name, as String gives it. Another name is an error of
// kind ValueError.
func ParseStateSharding(name string) (StateSharding, error) {
	if at := slices.Index(stateNames, name); at > 0 {
		return StateSharding(at), nil
	}
	return 0, &errkind.Fault{Op: "logical: state sharding", Reason: fmt.Sprintf("%q is none", name),
		Hint: `write "none", "optimizer", "gradients" or "parameters"`, Class: errkind.ValueError}
}

// moments are the ends of the names that GoMLX's Adam, AdamW, Adamax and RMSProp give to their
// state.
var moments = []string{"_1st_moment", "_2nd_moment"}

// accumulated is the scope in which GoMLX's trainer adds up gradients.
const accumulated = "acc_grads"

// StateOf returns the path of the variable whose state is kept at path, or "". Optimizers keep what
// belongs to a variable below its own path, such as "/AdamOptimizer/hidden/weights_1st_moment": of
// the parts of path that begin with a slash behind its first, it is the longest that is a variable.
//
// Without variable, where the variables are not known, it goes by the names that GoMLX gives: those of
// moments, whatever the optimizer's scope, and of "/acc_grads/hidden/weights", where the trainer adds
// up gradients.
func StateOf(path string, variable func(path string) bool) (of string) {
	if variable == nil {
		of, _ = stateByName(path)
		return of
	}
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		for end := len(path); end > i+max(1, len(of)); end-- {
			if variable(path[i:end]) {
				of = path[i:end]
				break
			}
		}
	}
	return of
}

// stateByName also returns from which level on the replicas share out what is kept at the path.
func stateByName(path string) (of string, level StateSharding) {
	scope, rest, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !found || !strings.HasPrefix(path, "/") || rest == "" {
		return "", ShardParameters
	}
	for _, end := range moments {
		if of, is := strings.CutSuffix(rest, end); is && of != "" && !strings.HasSuffix(of, "/") {
			return "/" + of, ShardOptimizer
		}
	}
	if scope == accumulated {
		return "/" + rest, ShardGradients
	}
	return "", ShardParameters
}
