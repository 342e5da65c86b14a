package precision

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// view is a variable in Compute for the time of a forward part. GoMLX knows the node of a variable
// in a graph by the variable's path, so the cast is what every layer gets that asks for it.
type view struct {
	variable  *model.Variable
	was, cast *graph.Node
}

// with runs f with the store's variables seen as the part sees them.
func (c *part) with(p Policy, g *graph.Graph, store *model.Store, f func()) {
	var views []*view
	before := map[*model.Variable]bool{}
	for v := range store.IterVariables() {
		before[v] = true
		if v.DType() != p.Parameters || c.dtypes[v.Path()] != p.Compute {
			continue
		}
		was := v.NodeValue(g)
		views = append(views, &view{v, was, graph.ConvertDType(was, p.Compute)})
	}
	defer func() { // also if f panics: the step may recover from it and go on
		for _, w := range views {
			must(setDType(w.variable, p.Parameters))
		}
	}()
	for _, w := range views {
		must(setDType(w.variable, p.Compute))
		w.variable.SetNodeValue(w.cast)
	}
	f()
	for v := range store.IterVariables() {
		if !before[v] && v.DType() == p.Compute {
			panic(wrong(fmt.Sprintf("variable %q", v.Path()), "let the step's code ask for the same variables each time that it runs",
				"it was not asked for when the step was traced first"))
		}
	}
	p.checkStored(g, store, views)
	states := written(views)
	for _, w := range views {
		must(setDType(w.variable, p.Parameters))
		now := w.was
		if value, ok := states[w]; ok {
			now = value
		}
		w.variable.SetNodeValue(now)
	}
}

// checkStored refuses variables to train that the store itself has in Compute.
func (p Policy) checkStored(g *graph.Graph, store *model.Store, views []*view) {
	viewed := map[*model.Variable]bool{}
	for _, w := range views {
		viewed[w.variable] = true
	}
	for v := range store.IterVariables() {
		if !viewed[v] && v.DType() == p.Compute && v.Trainable && v.InUseByGraph(g) {
			panic(wrong(fmt.Sprintf("variable %q", v.Path()), fmt.Sprintf("give the store its value in %s, or set Policy.Parameters to %s", p.Parameters, p.Compute),
				"the store has it in %s, and the policy keeps parameters in %s", p.Compute, p.Parameters))
		}
	}
}

// discover runs f to see what it asks the store for. Variables in Parameters are out of its way, so
// that it makes anew what it wants, in the dtype that it wants. The graph is of no use afterwards:
// discover always panics, with the error of f, or so that the step is traced again.
func (c *part) discover(p Policy, g *graph.Graph, store *model.Store, f func()) {
	again := func() {
		tracedOf(g).tracing.again = true
		panic(errAgain)
	}
	list, err := variablesOf(store)
	must(err)
	var kept []*model.Variable // in Parameters
	hidden := map[string]*model.Variable{}
	for v := range store.IterVariables() {
		if v.DType() != p.Parameters {
			continue
		}
		kept = append(kept, v)
		if !c.looked[v.Path()] {
			hidden[v.Path()] = v
		}
	}
	for _, v := range kept { // for code that holds one, or looks it up
		must(setDType(v, p.Compute))
	}
	loader, missed := store.Loader(), &misses{}
	store.SetLoader(missed)
	restore := list.hide(func(v *model.Variable) bool { return hidden[v.Path()] == v })
	whole := false
	defer func() { // a panic of f goes on from here
		made := restore()
		store.SetLoader(loader)
		for _, v := range kept {
			must(setDType(v, p.Parameters))
		}
		if c.lookedUp(missed.paths, made, hidden) {
			again()
		}
		if whole {
			c.learn(p, g, store, kept, made, hidden)
			again()
		}
	}()
	f()
	whole = true
}

// lookedUp reports whether the code looked for variables that were out of the way and that no layer
// had made before. They are in the store in the next run.
func (c *part) lookedUp(missed []string, made []*model.Variable, hidden map[string]*model.Variable) bool {
	found := false
	for _, path := range missed {
		if hidden[path] != nil && !c.looked[path] && !slices.ContainsFunc(made, func(v *model.Variable) bool { return v.Path() == path }) {
			c.looked[path], found = true, true
		}
	}
	return found
}

// learn takes from a run in which dtypes the part sees the variables, and gives the store those
// that it lacks, in Parameters.
func (c *part) learn(p Policy, g *graph.Graph, store *model.Store, kept, made []*model.Variable, hidden map[string]*model.Variable) {
	c.known, c.dtypes = true, map[string]dtypes.DType{}
	for _, v := range kept {
		if v.InUseByGraph(g) {
			c.dtypes[v.Path()] = p.Compute
		}
	}
	list, err := variablesOf(store)
	must(err)
	for _, v := range made {
		path := v.Path()
		c.dtypes[path] = v.DType()
		if hidden[path] != nil || store.GetVariable(path) != nil { // a loader may have it
			continue
		}
		if v.DType() == p.Compute {
			must(widen(v, p.Parameters))
		}
		list.add(v)
	}
}

// misses is a loader that has nothing, and keeps what it was asked for.
type misses struct{ paths []string }

// LoadVariable implements [model.Loader].
func (m *misses) LoadVariable(_ *model.Store, path string) (*tensors.Tensor, bool) {
	m.paths = append(m.paths, path)
	return nil, false
}

// DeleteVariable implements [model.Loader].
func (m *misses) DeleteVariable(*model.Store, string) error { return nil }

// widen gives a variable a dtype, and its value too, if it has one.
func widen(v *model.Variable, dtype dtypes.DType) error {
	if !v.HasValue() {
		return setDType(v, dtype)
	}
	old, err := v.Value()
	if err != nil {
		return err
	}
	value, err := converted(old, dtype)
	if err != nil {
		return &errkind.Fault{Op: "precision:", Subject: fmt.Sprintf("variable %q", v.Path()), Err: err}
	}
	return v.SetValue(value)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
