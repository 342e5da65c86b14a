package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// checkRule returns an error if a rule splits the same dimension over the replicas and over logical
// axes.
func checkRule(r logical.Rule) error {
	a := r.Annotation
	if len(r.Largest) > 0 {
		a = logical.SplitOverAxes(strings.Join(r.Largest, ","))
	}
	if d := a.ReplicaDim(); d >= 0 && len(a.Axes()[d]) > 1 {
		return &logical.Error{Op: "split", Dim: d,
			Reason: fmt.Sprintf("dimension %d is split over the replicas and over logical axes", d),
			Hint:   "split another dimension over the logical axes"}
	}
	return nil
}

// stateShard returns how a part of the training state of the variable at path is sharded over the
// replicas. Training state, such as the optimizer's moments, has the shape of the variable.
// stateShard selects a dimension that split does not already divide over the logical devices, and
// that is not dimension 0 of a stack of layers. The result is unsharded if the rules do not shard
// this part.
func (vs *Variables) stateShard(part logical.StateParts, path string, shape shapes.Shape, stacked bool,
	split logical.Annotation) spmd.ReplicaShard {
	s := vs.strategy
	if s.replicas == 1 || shape.Size() < 2 || !(shape.DType.IsFloat() || shape.DType.IsComplex()) {
		return spmd.ReplicaShard{}
	}
	if state, _ := s.opts.Variables.StateFor(path, shape.Dimensions); !state.Parts().Contains(part) {
		return spmd.ReplicaShard{}
	}
	largest := -1
	for d, n := range shape.Dimensions {
		switch {
		case stacked && d == 0:
		case isSplit(split, s.axes, d):
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

func isSplit(a logical.Annotation, axes sharding.Mesh, d int) bool {
	parts := a.PartsOn(axes)
	return d < len(parts) && parts[d] > 1
}

// placement determines how a store variable is placed on the devices. It returns the split over the
// logical devices, the index of the rule that matches the variable or -1, and the dimension that is
// sharded over the replicas.
func (vs *Variables) placement(source *model.Variable) (a logical.Annotation, rule int, over spmd.ReplicaShard,
	err error) {
	s, shape := vs.strategy, source.Shape()
	a, byRule, rule := vs.placementByRules(source)
	switch {
	case !s.shardsState:
		return a, rule, over, nil
	case source.Trainable && !byRule.IsSharded() && !vs.isProxy(source.Path()):
		return a, rule, vs.stateShard(logical.Parameter, source.Path(), shape, vs.isStack(source.Path()), a), nil
	}
	path, of := vs.trainedVariable(source)
	if path == "" {
		return a, rule, byRule, nil
	}
	if rule < 0 {
		a = of
	}
	if trained := vs.variablesByPath()[path]; trained != nil {
		_, over, _ = vs.placementByRules(trained)
	}
	if !over.IsSharded() {
		over = vs.stateShard(logical.OptimizerState, path, shape, vs.isStack(path), of)
	}
	if byRule.IsSharded() && byRule != over {
		return a, rule, over, fault.New(errkind.ValueError, fmt.Sprintf("variable %q", source.Path()),
			"let one rule reach both variables",
			"rule %d cuts dimension %d over the replicas, and as state of %q it is %s", rule, byRule.Dim, path, over)
	}
	if over.IsSharded() && isSplit(a, s.axes, over.Dim) {
		return a, rule, over, fault.New(errkind.ValueError, fmt.Sprintf("variable %q", source.Path()),
			"give it the rule of that variable",
			"rule %d splits dimension %d over the logical devices, which as state of %q is cut over the replicas",
			rule, over.Dim, path)
	}
	return a, rule, over, nil
}

// placementByRules returns the placement that the rules specify for this variable alone. In
// contrast to placement, it does not shard training state over the replicas together with its
// variable.
func (vs *Variables) placementByRules(source *model.Variable) (a logical.Annotation, over spmd.ReplicaShard, rule int) {
	s, dims := vs.strategy, source.Shape().Dimensions
	a, rule = s.opts.Variables.AnnotationFor(s.fullMesh, source.Path(), dims)
	if d := a.ReplicaDim(); d >= 0 && s.replicas > 1 && !vs.isProxy(source.Path()) {
		over = spmd.ReplicaShard{Dim: d, Size: dims[d]}
	}
	if like := vs.proxiedVariable(source); like != nil && rule < 0 {
		return like.annotation, over, rule
	}
	return a.WithinReplica(), over, rule
}

// isProxy reports whether path is the path of a proxy; see registerProxy.
func (vs *Variables) isProxy(path string) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.proxied[path] != nil
}

// trainedVariable finds the variable whose training creates the optimizer state source. It returns
// the path of this variable and its split over the logical devices. Optimizers create state with
// the dimensions of the variable, at a path below the variable's path. The result path is "" if
// source is not optimizer state.
func (vs *Variables) trainedVariable(source *model.Variable) (path string, split logical.Annotation) {
	if source.Trainable {
		return "", split
	}
	known := vs.variablesByPath()
	if path = logical.OwnerOfState(source.Path(), func(path string) bool {
		v := known[path]
		return v != nil && v.Trainable && slices.Equal(v.Shape().Dimensions, source.Shape().Dimensions) &&
			!vs.isProxy(path)
	}); path != "" {
		split, _, _ = vs.placementByRules(vs.store.GetVariable(path))
	}
	if like := vs.proxiedVariable(source); like != nil && path == "" {
		return like.path, like.annotation
	}
	return path, split
}

// proxiedVariable finds the variable of NewVariable whose training creates the optimizer state
// source. It returns nil if there is none. The state has the dimensions and the layout of this
// variable.
func (vs *Variables) proxiedVariable(source *model.Variable) *Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.proxied[logical.OwnerOfState(source.Path(), func(path string) bool {
		v := vs.proxied[path]
		return v != nil && slices.Equal(v.shape, source.Shape().Dimensions)
	})]
}

// variablesByPath returns a map from paths to the store's variables. The map is cached because the
// store's own lookup may load a variable from a checkpoint.
func (vs *Variables) variablesByPath() map[string]*model.Variable {
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

func (vs *Variables) replicaShard(source *model.Variable) spmd.ReplicaShard {
	if v, ok := vs.Lookup(source.Path()); ok {
		return v.replicaShard
	}
	_, _, over, err := vs.placement(source)
	if err != nil {
		panic(err)
	}
	return over
}

// isStack reports whether the variable at path is a stack of layers that a loop over layers reads.
func (vs *Variables) isStack(path string) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.stacks[path]
}
