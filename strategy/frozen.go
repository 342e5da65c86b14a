package strategy

import (
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// A training step may leave trainable variables as they are. These stay trainable in the store, so
// that they lie on the devices as variables that are trained: what is shared out is shared out.

// freeze says which variables the step does not train, by their paths; nil for none.
func (rc *ReplicaContext) freeze(frozen func(path string) bool) {
	rc.frozen = frozen
	if frozen != nil {
		region.SetFrozen(rc.graph, func(parameter string) bool { return frozen(rc.pathOf(parameter)) })
	}
}

// pathOf is the path by which users know a variable of the step's store: that of the variable of
// the scope for a stand-in.
func (rc *ReplicaContext) pathOf(path string) string {
	if c := rc.standingIn(path); c != nil {
		return c.variable.path
	}
	return path
}

// trains reports whether the step trains a variable that it uses.
func (rc *ReplicaContext) trains(v *model.Variable) bool {
	return v.Trainable && v.InUseByGraph(rc.graph) && (rc.frozen == nil || !rc.frozen(rc.pathOf(v.Path())))
}

// withoutFrozen runs f with a store in which the variables that are not trained are not trainable.
func (rc *ReplicaContext) withoutFrozen(store *model.Store, f func()) {
	var all []*model.Variable
	if rc.frozen != nil {
		for v := range store.IterVariables() {
			if v.Trainable && rc.frozen(rc.pathOf(v.Path())) {
				all = append(all, v.SetTrainable(false))
			}
		}
	}
	defer func() {
		for _, v := range all {
			v.SetTrainable(true)
		}
	}()
	f()
}

func (m innerContext) Freeze(frozen func(path string) bool) { m.freeze(frozen) }

// Trainable are the paths of the trainable variables that the step uses, frozen ones too.
func (m innerContext) Trainable() (paths []string) {
	rc := m.ReplicaContext
	for v := range rc.scope.IterVariables() {
		if v.Trainable && v.InUseByGraph(rc.graph) {
			paths = append(paths, rc.pathOf(v.Path()))
		}
	}
	return paths
}

// KeepFrozen runs f and leaves variables that the step does not train as they were before.
func (m innerContext) KeepFrozen(f func()) {
	rc := m.ReplicaContext
	if rc.frozen == nil {
		f()
		return
	}
	var keep []func()
	for v := range rc.scope.IterVariables() {
		if v.Trainable && v.InUseByGraph(rc.graph) && !rc.trains(v) {
			was := v.NodeValue(rc.graph)
			keep = append(keep, func() { v.SetNodeValue(was) })
		}
	}
	f()
	for _, restore := range keep {
		restore()
	}
}
