package strategy

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// A training step can take its batch as microbatches, one after another in a loop of the program,
// whose body is what the step does with one. A replica's microbatches have equally many rows. Where
// the rows do not divide, or not all of them are real, the last microbatches are padded, and the
// body leaves the padding out as a step leaves out that of an uneven batch: see padding.go. The
// padded size is then a microbatch's, which has other real rows in each run of the loop.

// cutting says how a replica's rows are cut into microbatches.
type cutting struct {
	n    int // microbatches, 1 for none
	rows int // of each, where they are padded
	// padded is whether some rows are not real, ragged the argument that has the real rows, or -1 if
	// all of the length rows of the arguments are.
	padded bool
	ragged int
	length int
	err    error
}

// cut says how the values' rows are cut. Values that are the same on all replicas, and scalars, are
// the same in each microbatch.
func (f *Function) cut(values []Value) (c cutting) {
	c.n, c.ragged = max(f.microbatches, 1), -1
	if c.n == 1 {
		return c
	}
	wrong := func(hint, reason string, args ...any) cutting {
		return cutting{n: 1, ragged: -1, err: fault.New(ValueError, fmt.Sprintf("%d microbatches", f.microbatches), hint, reason, args...)}
	}
	first := -1
	var full []int // the arguments of which all rows are real
	same := true
	for i := range values {
		base := values[i].base()
		if f.sizesAt(values, i) || !base.perReplica || len(base.shape) == 0 {
			continue
		}
		if first < 0 {
			first, c.length = i, base.shape[0]
		}
		same = same && base.shape[0] == c.length
		switch {
		case !rowsDiffer(base):
			full = append(full, i)
		case c.ragged < 0:
			c.ragged = i
		}
	}
	switch {
	case first < 0:
		return wrong("give the step a batch, or leave the option out", "no argument has rows")
	case c.ragged >= 0 && len(full) > 0:
		return wrong("give tensors of the same rows", "arguments %d and %d have other numbers of rows", c.ragged, full[0])
	case same && c.ragged < 0 && c.length <= c.n:
		c.n, c.rows = c.length, 1
	case same:
		c.rows = (c.length + c.n - 1) / c.n
		if c.padded = c.ragged >= 0 || c.length%c.n != 0; c.padded {
			c.rows = max(c.rows, 2) // a size of 1 is broadcast
		}
		c.n = (c.length + c.rows - 1) / c.rows
	default:
		for i := range values {
			if base := values[i].base(); !f.sizesAt(values, i) && base.perReplica && len(base.shape) > 0 && base.shape[0]%c.n != 0 {
				return wrong(fmt.Sprintf("give it a multiple of %d rows for each replica, or all arguments equally many", c.n),
					"argument %d has %d rows, which do not divide, and argument %d has %d", i, base.shape[0], first, c.length)
			}
		}
	}
	if c.padded && c.n > 1 && !f.opts.PadRagged {
		return wrong(fmt.Sprintf("give a multiple of %d rows for each replica", c.n), "the replicas have %d rows, which do not divide", c.length)
	}
	return c
}

// sizesAt reports whether value i is not an argument but the sizes of one.
func (f *Function) sizesAt(values []Value, i int) bool {
	ragged := 0
	if f.takesRagged() {
		for _, v := range values {
			if v.base().ragged != nil {
				ragged++
			}
		}
	}
	return i >= len(values)-ragged
}

// rowsDiffer reports whether not all rows of a value are real.
func rowsDiffer(v *distributed) bool {
	return slices.ContainsFunc(v.ragged, func(real []int) bool { return real[0] != v.shape[0] })
}

// microbatch is the loop's body while it is traced.
type microbatch struct {
	rows *graph.Node // its real rows, nil if all are
	// share is what the mean of the microbatch counts of that of the replica where all rows are real.
	share float64
}

// microbatches traces body, which gets the arguments, for each microbatch, and returns the sums of
// what it returns. Where there is one microbatch body gets the arguments as they are.
func (rc *ReplicaContext) microbatches(body func(in []*graph.Node) []*graph.Node) []*graph.Node {
	c := rc.cut
	if c.err != nil {
		panic(c.err)
	}
	if c.n < 2 {
		return body(rc.arguments)
	}
	l := &microbatchLoop{rc: rc, cutting: c, body: body, store: rc.Scope().Store()}
	l.split()
	for {
		if sums, ok := l.attempt(); ok {
			return sums
		}
	}
}

// microbatchLoop is one call of microbatches. The variables that body writes go from one microbatch
// to the next. Which these are is known when it has been traced, so that it is traced again with
// them.
type microbatchLoop struct {
	rc *ReplicaContext
	cutting
	body  func(in []*graph.Node) []*graph.Node
	store *model.Store

	arguments []region.Argument
	first     *graph.Node // the first rows of the microbatches
	real      *graph.Node // the replica's real rows
	variables []*model.Variable
	held      []region.Held
	again     bool
}

// split makes the arguments of the loop.
func (l *microbatchLoop) split() {
	rc := l.rc
	if l.padded {
		l.real = rc.constant(dtypes.Int32, float64(l.length))
		rc.allRows = rc.constant(dtypes.Int32, float64(l.length*rc.strategy.replicas))
		if l.ragged >= 0 {
			rc.allRows = nil
			l.real, _ = rc.rows()
		}
	}
	l.first = graph.Iota(rc.graph, shapes.Make(dtypes.Int32, l.n), 0)
	if l.padded {
		l.first = graph.MulScalar(l.first, float64(l.rows))
	}
	l.arguments = []region.Argument{{Node: l.first, Crossing: region.Sliced{N: l.n}, Name: "first row"}}
	for i, x := range rc.arguments {
		a := region.Argument{Node: x, Crossing: region.Same{}, Name: fmt.Sprintf("argument %d", i)}
		if rc.values[i].base().perReplica && x.Rank() > 0 {
			a.Node, a.Crossing = l.stack(x), region.Sliced{N: l.n}
		}
		l.arguments = append(l.arguments, a)
	}
}

// stack is an argument's rows as those of the microbatches.
func (l *microbatchLoop) stack(x *graph.Node) *graph.Node {
	if !l.padded {
		return module.Cut(x, l.n, 0)
	}
	if more := l.n*l.rows - l.length; more > 0 {
		axes := make([]graph.PadAxis, x.Rank())
		axes[0].End = more
		x = graph.Pad(x, graph.Const(x.Graph(), shapes.CastAsDType(0, x.DType())), axes...)
	}
	return module.Cut(x, l.n, l.rc.resized)
}

// attempt traces the loop. It reports false if body wrote variables that the loop did not know.
func (l *microbatchLoop) attempt() (sums []*graph.Node, ok bool) {
	rc, g := l.rc, l.rc.graph
	target := g.Backend().(region.Target)
	writes := region.Watch(target, g)
	outside := map[*model.Variable]*graph.Node{}
	for v := range l.store.IterVariables() {
		if v.InUseByGraph(g) {
			outside[v] = v.NodeValue(g)
		}
	}
	before := func(v *model.Variable) *graph.Node {
		if x := outside[v]; x != nil {
			return x
		}
		return g.GetParameterByName(v.Path())
	}
	rewind, restore := precision.Mark(g), rc.begin()
	in := slices.Clone(l.arguments)
	for _, v := range l.variables {
		in = append(in, region.Argument{Node: before(v), Crossing: region.Carried{}, Name: "variable " + v.Path()})
	}
	for _, h := range l.held {
		in = append(in, region.Argument{Node: writes.Outside(h), Crossing: region.Carried{}, Name: "variable " + h.Name()})
	}
	l.again = false
	number := 0
	defer func() {
		if l.again {
			_ = recover() // body's trace is given up
			rewind()
		}
	}()
	var all []*graph.Node
	func() {
		defer func() {
			restore()
			for v := range l.store.IterVariables() {
				if v.InUseByGraph(g) {
					v.SetNodeValue(before(v))
				}
			}
			writes.Restore()
		}()
		all = region.Trace(target, region.Loop{N: l.n}, in, func(in []*graph.Node) []region.Result {
			results := l.trace(in, writes, before)
			number = len(results) - len(l.variables) - len(l.held)
			return results
		})
	}()
	sums = all[:number:number]
	for i, v := range l.variables {
		v.SetNodeValue(all[number+i])
	}
	for i, h := range l.held {
		h.Set(all[number+len(l.variables)+i])
	}
	return sums, true
}

// begin makes the context ready for a trace of body.
func (rc *ReplicaContext) begin() (restore func()) {
	arguments, sizes, scope := rc.arguments, rc.sizes, rc.scope
	rc.scope, rc.slices = scope.Store().RootScope(), map[string]*graph.Node{}
	sums := []string{gomlxtrain.TrainerRegularizationLossGraphParamKey, gomlxtrain.TrainerMainLossGraphParamKey}
	for _, key := range sums { // what a trace that was given up has added cannot be taken away
		path := model.JoinPath(gomlxtrain.TrainerAbsoluteScope, key)
		if old, found := model.GetGraphParam(rc.graph, path); found {
			model.SetGraphParam(rc.graph, path, graph.ScalarZero(rc.graph, old.(*graph.Node).DType()))
		}
	}
	return func() { rc.arguments, rc.sizes, rc.scope, rc.micro = arguments, sizes, scope, nil }
}

// trace traces body inside of the loop.
func (l *microbatchLoop) trace(in []*graph.Node, writes *region.Writes, before func(v *model.Variable) *graph.Node) (results []region.Result) {
	rc, g := l.rc, l.rc.graph
	take := func(n int) (list []*graph.Node) {
		list, in = in[:n:n], in[n:]
		return list
	}
	rc.micro = &microbatch{share: 1 / float64(l.n)}
	first := take(1)[0]
	if l.padded {
		zero, rows := rc.constant(dtypes.Int32, 0), rc.constant(dtypes.Int32, float64(l.rows))
		rc.micro.rows = module.RealRows(graph.Clip(graph.Sub(l.real, first), zero, rows))
	}
	l.give(take(len(l.arguments) - 1))
	entered := map[*model.Variable]*graph.Node{}
	for _, v := range l.variables {
		entered[v] = take(1)[0]
		v.SetNodeValue(entered[v])
	}
	was := take(len(l.held))
	for i, h := range l.held {
		writes.Begin(h, was[i])
	}
	sums := l.body(rc.arguments)
	for v := range l.store.IterVariables() {
		if v.InUseByGraph(g) && entered[v] == nil && v.NodeValue(g) != before(v) && rc.standingIn(v.Path()) == nil {
			l.variables, l.again = append(l.variables, v), true
		}
	}
	for _, h := range writes.Written() {
		if !slices.Contains(l.held, h) {
			l.held, l.again = append(l.held, h), true
		}
	}
	if l.again {
		panic("microbatches: the step is traced again") // see attempt
	}
	for i, x := range sums {
		results = append(results, region.Result{Node: x, Crossing: region.Same{}, Name: fmt.Sprintf("sum %d", i)})
	}
	for _, v := range l.variables {
		now := v.NodeValue(g)
		if rc.micro.rows != nil && v.DType().IsFloat() && now != entered[v] { // nothing is learned from padding
			now = rc.ifRows(rc.micro.rows, now, entered[v])
		}
		results = append(results, region.Result{Node: now, Crossing: region.Carried{}, Name: "variable " + v.Path()})
	}
	for i, h := range l.held {
		now := h.Now()
		if c, ok := h.(*captured); ok && rc.micro.rows != nil && c.variable.perReplica() {
			now = rc.ifRows(rc.micro.rows, now, was[i])
		}
		results = append(results, region.Result{Node: now, Crossing: region.Carried{}, Name: "variable " + h.Name()})
	}
	return results
}

// give makes the arguments those of a microbatch, split as the step's are.
func (l *microbatchLoop) give(in []*graph.Node) {
	rc := l.rc
	sizes := map[int]*graph.Node{}
	for i, x := range in {
		if _, sliced := l.arguments[i+1].Crossing.(region.Sliced); !sliced {
			continue
		}
		if a := rc.values[i].base().annotation; a.Kind() == logical.KindSplit && rc.divides(a, x.Shape().Dimensions) {
			in[i] = logical.Apply(x, a)
		}
		if rc.micro.rows == nil {
			continue
		}
		sizes[i] = graph.Reshape(rc.micro.rows, 1)
		if x.Rank() > 1 {
			others, ok := rc.sizes[i]
			if ok {
				others = graph.Slice(others, graph.AxisRange(1))
			} else {
				others = graph.Const(rc.graph, int32s(x.Shape().Dimensions[1:]))
			}
			sizes[i] = graph.Concatenate([]*graph.Node{sizes[i], others}, 0)
		}
	}
	for i, real := range rc.sizes {
		if sizes[i] == nil {
			sizes[i] = real
		}
	}
	rc.arguments, rc.sizes = in, sizes
}

func int32s(dims []int) []int32 {
	all := make([]int32, len(dims))
	for i, n := range dims {
		all[i] = int32(n)
	}
	return all
}

// divides reports whether the parts of an annotation divide a tensor's dimensions.
func (rc *ReplicaContext) divides(a logical.Annotation, dims []int) bool {
	for d, parts := range a.PartsOn(rc.strategy.axes) {
		if d >= len(dims) || parts > 0 && dims[d]%parts != 0 {
			return false
		}
	}
	return true
}
