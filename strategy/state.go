package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// StateSharding says what of the state of training the replicas share out among themselves, instead
// of each having all of it. It changes what the devices store and what a training step moves, not
// what the step computes: the values are those of whole state up to rounding, checkpoints hold the
// whole values, and reads and writes of variables see them.
//
// With R replicas, of a variable of b bytes whose optimizer keeps k tensors of its size (2 for
// Adam), a device stores b of the variable and k*b of the state, over its logical split. It sends
// 2(R-1)/R*b for the all-reduce of the gradient. The constants say what they change of this.
//
// A tensor is cut along its first dimension that no annotation splits over logical devices and that
// R divides, otherwise along its largest such dimension, which is padded with zeros on the devices.
// The dimension of the layers of a package loop's stack is not cut, if the first step that uses the
// stack has the loop. Tensors of fewer than [Options.SmallestSharded] elements stay whole, and so
// do those of which every dimension is split.
type StateSharding int

const (
	// ShardNothing gives each replica all of the state: TensorFlow's way.
	ShardNothing StateSharding = iota
	// ShardOptimizer shares out the optimizer's state (ZeRO-1). A device stores b + k*b/R. Each
	// replica updates its part of the variable and an all-gather brings the parts together, which
	// sends (R-1)/R*b more.
	ShardOptimizer
	// ShardGradients shares out the gradients as well (ZeRO-2). A device stores b + k*b/R. The
	// gradient comes by a reduce-scatter and the step never has the whole of its mean: with the
	// all-gather it sends 2(R-1)/R*b, as much as a step without shards.
	ShardGradients
	// ShardParameters shares out the trainable variables of stores as well (ZeRO-3, FSDP). A device
	// stores (1+k)*b/R. A step gathers a variable where it reads it, and never the updated one. A
	// step without training gathers it too. Variables of [TPUStrategy.NewVariable] stay whole.
	ShardParameters
)

// String returns the constant's name, such as "ShardOptimizer".
func (s StateSharding) String() string {
	if s < ShardNothing || s > ShardParameters {
		return fmt.Sprintf("StateSharding(%d)", int(s))
	}
	return [...]string{"ShardNothing", "ShardOptimizer", "ShardGradients", "ShardParameters"}[s]
}

// smallestSharded is the default of [Options.SmallestSharded].
const smallestSharded = 1024

// checkState refuses options that say nothing.
func (o *Options) checkState() error {
	switch {
	case o.State < ShardNothing || o.State > ShardParameters:
		return &OptionError{Option: "State", Reason: fmt.Sprintf("%s is none; use ShardNothing, ShardOptimizer, ShardGradients or ShardParameters", o.State)}
	case o.SmallestSharded < 0:
		return &OptionError{Option: "SmallestSharded", Reason: fmt.Sprintf("%d elements; use 0 for %d, or a positive number", o.SmallestSharded, smallestSharded)}
	}
	return nil
}

// sharding reports whether the replicas share out any state.
func (s *TPUStrategy) sharding() bool {
	return s.replicas > 1 && (s.opts.State != ShardNothing || s.opts.Variables.Uses(logical.ReplicaName))
}

// checkRule refuses a rule that names axes which are not there, and one that splits a dimension over
// the replicas and over logical axes.
func checkRule(r logical.Rule, axes, whole sharding.Mesh) error {
	a := r.Annotation
	if len(r.Largest) > 0 {
		a = logical.Over(strings.Join(r.Largest, ","))
	}
	d := a.ReplicaDim()
	if d < 0 {
		return a.CheckNames(axes)
	}
	if err := a.CheckNames(whole); err != nil {
		return err
	}
	if len(a.Axes()[d]) > 1 {
		return &logical.Error{Op: "split", Dim: d, Devices: axes.Size(), Reason: fmt.Sprintf("dimension %d is split over the replicas and over logical axes", d),
			Hint: "split another dimension over the logical axes"}
	}
	return nil
}

// overFor says along which dimension a tensor that is split over the logical devices is cut over
// the replicas. Of a stack of layers, each is cut.
func (s *TPUStrategy) overFor(shape shapes.Shape, stacked bool, split logical.Annotation) spmd.ReplicaShard {
	smallest := s.opts.SmallestSharded
	if smallest == 0 {
		smallest = smallestSharded
	}
	if s.replicas == 1 || s.opts.State == ShardNothing || shape.Size() < max(smallest, 2) || !(shape.DType.IsFloat() || shape.DType.IsComplex()) {
		return spmd.ReplicaShard{}
	}
	largest := -1
	for d, n := range shape.Dimensions {
		switch {
		case stacked && d == 0:
		case s.splitsDimension(split, d):
		case n%s.replicas == 0:
			return spmd.ReplicaShard{Dim: d, Size: n}
		case n > 1 && (largest < 0 || n > shape.Dimensions[largest]):
			largest = d
		}
	}
	if largest < 0 {
		return spmd.ReplicaShard{}
	}
	return spmd.ReplicaShard{Dim: largest, Size: shape.Dimensions[largest]}
}

// splitsDimension reports whether an annotation splits a dimension.
func (s *TPUStrategy) splitsDimension(a logical.Annotation, d int) bool {
	parts := a.PartsOn(s.axes)
	return d < len(parts) && parts[d] > 1
}

// placeOf says how a variable of the store lies on the devices: split over the logical devices, by
// which rule or -1, and in parts over the replicas.
func (vs *Variables) placeOf(source *model.Variable) (a logical.Annotation, rule int, over spmd.ReplicaShard, err error) {
	a, rule = vs.ruled(source)
	if !vs.strategy.sharding() {
		return a, rule, over, nil
	}
	byRule := vs.ruledOver(source)
	if source.Trainable {
		if over = byRule; over.Is() {
			return a, rule, over, nil
		}
		if vs.strategy.opts.State == ShardParameters && !vs.isProxy(source.Path()) {
			over = vs.strategy.overFor(source.Shape(), vs.isStack(source.Path()), a)
		}
		return a, rule, over, nil
	}
	path, of := vs.stateOf(source)
	if path == "" {
		return a, rule, byRule, nil
	}
	if rule < 0 {
		a = of
	}
	shape := source.Shape()
	if trained := vs.byPath()[path]; trained != nil {
		over = vs.ruledOver(trained)
	}
	if !over.Is() {
		over = vs.strategy.overFor(shape, vs.isStack(path), of)
	}
	if byRule.Is() && byRule != over {
		return a, rule, over, fault.New(ValueError, fmt.Sprintf("variable %q", source.Path()), "let one rule reach both variables",
			"rule %d cuts dimension %d over the replicas, and as state of %q it is %s", rule, byRule.Dim, path, over)
	}
	if over.Is() && vs.strategy.splitsDimension(a, over.Dim) {
		return a, rule, over, fault.New(ValueError, fmt.Sprintf("variable %q", source.Path()),
			"give it the rule of that variable",
			"rule %d splits dimension %d over the logical devices, which as state of %q is cut over the replicas", rule, over.Dim, path)
	}
	return a, rule, over, nil
}

// ruledOver says along which dimension a rule cuts a variable of the store over the replicas.
func (vs *Variables) ruledOver(source *model.Variable) spmd.ReplicaShard {
	if vs.strategy.replicas == 1 || vs.isProxy(source.Path()) {
		return spmd.ReplicaShard{}
	}
	shape := source.Shape()
	a, _ := vs.strategy.opts.Variables.For(vs.strategy.whole, source.Path(), shape.Dimensions)
	if d := a.ReplicaDim(); d >= 0 {
		return spmd.ReplicaShard{Dim: d, Size: shape.Dimensions[d]}
	}
	return spmd.ReplicaShard{}
}

// ruled is how a variable of the store is split over the logical devices, and the rule that says
// so, or -1.
func (vs *Variables) ruled(source *model.Variable) (logical.Annotation, int) {
	a, rule := vs.strategy.opts.Variables.For(vs.strategy.whole, source.Path(), source.Shape().Dimensions)
	a = a.WithinReplica()
	if rule < 0 {
		if like := vs.trainedLike(source); like != nil {
			a = like.annotation
		}
	}
	return a, rule
}

// isProxy reports whether a path is that of a proxy for a variable of the scope.
func (vs *Variables) isProxy(path string) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.trained[path] != nil
}

// stateOf returns the trained variable whose state a variable of the store is, and how it is split
// over the logical devices: optimizers keep their state below the paths of the variables, in their
// dimensions. Without one the path is "".
func (vs *Variables) stateOf(source *model.Variable) (path string, of logical.Annotation) {
	if source.Trainable {
		return "", of
	}
	known := vs.byPath()
	if path = logical.StateOf(source.Path(), func(path string) bool {
		v := known[path]
		return v != nil && v.Trainable && slices.Equal(v.Shape().Dimensions, source.Shape().Dimensions) && !vs.isProxy(path)
	}); path != "" {
		of, _ = vs.ruled(vs.store.GetVariable(path))
	}
	if like := vs.trainedLike(source); like != nil && path == "" {
		return like.path, like.annotation
	}
	return path, of
}

// byPath are the store's variables, until the next trace begins. The store's own look-up may load
// one from a checkpoint.
func (vs *Variables) byPath() map[string]*model.Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if len(vs.paths) != vs.store.NumVariables() {
		vs.paths = make(map[string]*model.Variable, vs.store.NumVariables())
		for v := range vs.store.IterVariables() {
			vs.paths[v.Path()] = v
		}
	}
	return vs.paths
}

// overOf says how a variable of the store is in parts over the replicas.
func (vs *Variables) overOf(source *model.Variable) spmd.ReplicaShard {
	if v, ok := vs.Lookup(source.Path()); ok {
		return v.over
	}
	_, _, over, err := vs.placeOf(source)
	if err != nil {
		panic(err)
	}
	return over
}

// isStack reports whether a variable is known to be a stack of layers.
func (vs *Variables) isStack(path string) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.stacks[path]
}
