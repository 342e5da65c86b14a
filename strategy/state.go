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

// checkRule refuses a rule that splits a dimension over the replicas and over logical axes.
func checkRule(r logical.Rule) error {
	a := r.Annotation
	if len(r.Largest) > 0 {
		a = logical.Over(strings.Join(r.Largest, ","))
	}
	if d := a.ReplicaDim(); d >= 0 && len(a.Axes()[d]) > 1 {
		return &logical.Error{Op: "split", Dim: d, Reason: fmt.Sprintf("dimension %d is split over the replicas and over logical axes", d),
			Hint: "split another dimension over the logical axes"}
	}
	return nil
}

// stateOver says along which dimension a tensor that belongs to the training of the variable at path
// is cut over the replicas, if the rules share out that much of it. The tensor has the variable's
// shape and is split over the logical devices. Of a stack of layers, each is cut.
func (vs *Variables) stateOver(least logical.StateSharding, path string, shape shapes.Shape, stacked bool, split logical.Annotation) spmd.ReplicaShard {
	s := vs.strategy
	if s.replicas == 1 || shape.Size() < 2 || !(shape.DType.IsFloat() || shape.DType.IsComplex()) {
		return spmd.ReplicaShard{}
	}
	if state, _ := s.opts.Variables.State(path, shape.Dimensions); state < least {
		return spmd.ReplicaShard{}
	}
	largest := -1
	for d, n := range shape.Dimensions {
		switch {
		case stacked && d == 0:
		case splits(split, s.axes, d):
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

// splits reports whether an annotation splits a dimension over logical axes.
func splits(a logical.Annotation, axes sharding.Mesh, d int) bool {
	parts := a.PartsOn(axes)
	return d < len(parts) && parts[d] > 1
}

// placeOf says how a variable of the store lies on the devices: split over the logical devices, by
// which rule or -1, and in parts over the replicas.
func (vs *Variables) placeOf(source *model.Variable) (a logical.Annotation, rule int, over spmd.ReplicaShard, err error) {
	s, shape := vs.strategy, source.Shape()
	a, byRule, rule := vs.ruled(source)
	switch {
	case !s.sharding:
		return a, rule, over, nil
	case source.Trainable && !byRule.Is() && !vs.isProxy(source.Path()):
		return a, rule, vs.stateOver(logical.ShardParameters, source.Path(), shape, vs.isStack(source.Path()), a), nil
	}
	path, of := vs.stateOf(source)
	if path == "" {
		return a, rule, byRule, nil
	}
	if rule < 0 {
		a = of
	}
	if trained := vs.byPath()[path]; trained != nil {
		_, over, _ = vs.ruled(trained)
	}
	if !over.Is() {
		over = vs.stateOver(logical.ShardOptimizer, path, shape, vs.isStack(path), of)
	}
	if byRule.Is() && byRule != over {
		return a, rule, over, fault.New(errkind.ValueError, fmt.Sprintf("variable %q", source.Path()), "let one rule reach both variables",
			"rule %d cuts dimension %d over the replicas, and as state of %q it is %s", rule, byRule.Dim, path, over)
	}
	if over.Is() && splits(a, s.axes, over.Dim) {
		return a, rule, over, fault.New(errkind.ValueError, fmt.Sprintf("variable %q", source.Path()),
			"give it the rule of that variable",
			"rule %d splits dimension %d over the logical devices, which as state of %q is cut over the replicas", rule, over.Dim, path)
	}
	return a, rule, over, nil
}

// ruled is how rules with axes lay out a variable of the store: split over the logical devices, in
// parts over the replicas, and by which rule, or -1.
func (vs *Variables) ruled(source *model.Variable) (a logical.Annotation, over spmd.ReplicaShard, rule int) {
	s, dims := vs.strategy, source.Shape().Dimensions
	a, rule = s.opts.Variables.For(s.whole, source.Path(), dims)
	if d := a.ReplicaDim(); d >= 0 && s.replicas > 1 && !vs.isProxy(source.Path()) {
		over = spmd.ReplicaShard{Dim: d, Size: dims[d]}
	}
	if like := vs.trainedLike(source); like != nil && rule < 0 {
		return like.annotation, over, rule
	}
	return a.WithinReplica(), over, rule
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
		of, _, _ = vs.ruled(vs.store.GetVariable(path))
	}
	if like := vs.trainedLike(source); like != nil && path == "" {
		return like.path, like.annotation
	}
	return path, of
}

// trainedLike returns the variable of the scope whose optimizer state a variable of the store is,
// if it has its shape: it is laid out like it.
func (vs *Variables) trainedLike(source *model.Variable) *Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.trained[logical.StateOf(source.Path(), func(path string) bool {
		v := vs.trained[path]
		return v != nil && slices.Equal(v.shape, source.Shape().Dimensions)
	})]
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
