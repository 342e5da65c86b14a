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

// castVariable is a variable that is cast to Compute during a call of [Policy.Forward]. GoMLX finds
// the node of a variable by its path, so all layers that request the variable receive the cast.
type castVariable struct {
	variable       *model.Variable
	original, cast *graph.Node
}

// traceWithCasts traces f. While f is traced, layers receive casts of the variables that they read
// in the Compute dtype, which discoverDTypes has found.
func (c *forwardCall) traceWithCasts(p Policy, g *graph.Graph, store *model.Store, f func()) {
	var views []*castVariable
	before := map[*model.Variable]bool{}
	for v := range store.IterVariables() {
		before[v] = true
		if v.DType() != p.Parameters || c.dtypes[v.Path()] != p.Compute {
			continue
		}
		was := v.NodeValue(g)
		views = append(views, &castVariable{v, was, graph.ConvertDType(was, p.Compute)})
	}
	defer func() { // also restore the dtypes if f panics, because the step may recover
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
			panic(invalidError(fmt.Sprintf("variable %q", v.Path()), "request the same variables in every trace of the step",
				"it was not requested in the first trace of the step"))
		}
	}
	p.checkStored(g, store, views)
	states := updatedStates(views)
	for _, w := range views {
		must(setDType(w.variable, p.Parameters))
		now := w.original
		if value, ok := states[w]; ok {
			now = value
		}
		w.variable.SetNodeValue(now)
	}
}

// checkStored panics if a trainable variable is stored in the policy's Compute dtype.
func (p Policy) checkStored(g *graph.Graph, store *model.Store, views []*castVariable) {
	viewed := map[*model.Variable]bool{}
	for _, w := range views {
		viewed[w.variable] = true
	}
	for v := range store.IterVariables() {
		if !viewed[v] && v.DType() == p.Compute && v.Trainable && v.InUseByGraph(g) {
			panic(invalidError(fmt.Sprintf("variable %q", v.Path()),
				fmt.Sprintf("give the store its value in %s, or set Policy.Parameters to %s", p.Parameters, p.Compute),
				"the store has it in %s, and the policy keeps parameters in %s", p.Compute, p.Parameters))
		}
	}
}

// discoverDTypes traces f to find the dtypes in which layers request their variables. It removes
// the variables with the Parameters dtype from the store during the trace, so that the layers
// create them again in the requested dtypes. The graph cannot be used after this trace. Therefore
// discoverDTypes never returns: it panics with errRetrace, which starts the next trace, or with the
// value with which f panics.
func (c *forwardCall) discoverDTypes(p Policy, g *graph.Graph, store *model.Store, f func()) {
	again := func() {
		graphStateOf(g).tracing.retrace = true
		panic(errRetrace)
	}
	list, err := variableListOf(store)
	must(err)
	var kept []*model.Variable // in Parameters
	hidden := map[string]*model.Variable{}
	for v := range store.IterVariables() {
		if v.DType() != p.Parameters {
			continue
		}
		kept = append(kept, v)
		if !c.visible[v.Path()] {
			hidden[v.Path()] = v
		}
	}
	for _, v := range kept { // for code that holds one, or looks it up
		must(setDType(v, p.Compute))
	}
	loader, missed := store.Loader(), &recordingLoader{}
	store.SetLoader(missed)
	restore := list.hide(func(v *model.Variable) bool { return hidden[v.Path()] == v })
	whole := false
	defer func() { // a panic of f continues after this function
		made := restore()
		store.SetLoader(loader)
		for _, v := range kept {
			must(setDType(v, p.Parameters))
		}
		if c.recordLookups(missed.paths, made, hidden) {
			again()
		}
		if whole {
			c.recordDTypes(p, g, store, kept, made, hidden)
			again()
		}
	}()
	f()
	whole = true
}

// recordLookups records the variables that discoverDTypes had removed from the store and that the
// model looked up before a layer created them. It reports whether there are any. The next trace
// keeps these variables in the store.
func (c *forwardCall) recordLookups(missed []string, made []*model.Variable, hidden map[string]*model.Variable) bool {
	found := false
	for _, path := range missed {
		if hidden[path] != nil && !c.visible[path] && !slices.ContainsFunc(made,
			func(v *model.Variable) bool { return v.Path() == path }) {
			c.visible[path], found = true, true
		}
	}
	return found
}

// recordDTypes records the dtypes in which the model reads its variables. It adds the variables
// that the model created to the store, in the Parameters dtype.
func (c *forwardCall) recordDTypes(p Policy, g *graph.Graph, store *model.Store, kept, made []*model.Variable,
	hidden map[string]*model.Variable) {
	c.known, c.dtypes = true, map[string]dtypes.DType{}
	for _, v := range kept {
		if v.InUseByGraph(g) {
			c.dtypes[v.Path()] = p.Compute
		}
	}
	list, err := variableListOf(store)
	must(err)
	for _, v := range made {
		path := v.Path()
		c.dtypes[path] = v.DType()
		if hidden[path] != nil || store.GetVariable(path) != nil { // a loader may have it
			continue
		}
		if v.DType() == p.Compute {
			must(convertVariable(v, p.Parameters))
		}
		list.add(v)
	}
}

// recordingLoader is a loader without variables that records the requested paths.
type recordingLoader struct{ paths []string }

// LoadVariable implements [model.Loader].
func (m *recordingLoader) LoadVariable(_ *model.Store, path string) (*tensors.Tensor, bool) {
	m.paths = append(m.paths, path)
	return nil, false
}

// DeleteVariable implements [model.Loader].
func (m *recordingLoader) DeleteVariable(*model.Store, string) error { return nil }

// convertVariable changes the dtype of a variable and converts its value, if it has one.
func convertVariable(v *model.Variable, dtype dtypes.DType) error {
	if !v.HasValue() {
		return setDType(v, dtype)
	}
	old, err := v.Value()
	if err != nil {
		return err
	}
	value, err := convertTensor(old, dtype)
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
