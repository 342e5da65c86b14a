package train

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A training step can process its batch as microbatches, in a loop of the program whose body processes
// one microbatch. All microbatches of a replica have the same number of rows. If the number of rows is
// not divisible, or some rows are padding, the last microbatches are padded. The body ignores the
// padding as a step ignores the padding of an uneven batch: see strategy.MaskPadding.

// microbatchSplit describes how a replica's rows are split into microbatches.
type microbatchSplit struct {
	n    int // number of microbatches, 1 without a loop
	size int // rows of each microbatch
	// padded reports whether some rows of the microbatches are padding.
	padded bool
	// ragged is the index of an argument whose rows are partly padding, or -1 if there is none. length
	// is the number of rows of the arguments, with padding.
	ragged int
	length int
}

// splitMicrobatches determines how the rows of a step's arguments are split into microbatches. Scalars and
// values that are equal on all replicas are not split.
func splitMicrobatches(s *strategy.TPUStrategy, microbatches int, arguments []strategy.Value) (microbatchSplit, error) {
	c := microbatchSplit{n: max(microbatches, 1), ragged: -1}
	if c.n == 1 {
		return c, nil
	}
	wrong := func(hint, reason string, args ...any) (microbatchSplit, error) {
		return microbatchSplit{n: 1, ragged: -1}, fault.New(errkind.ValueError, fmt.Sprintf("%d microbatches",
			microbatches), hint, reason, args...)
	}
	rows := make([]int, len(arguments)) // -1 for arguments that are not split
	first, full := -1, -1               // the first split argument, and the first one without padding
	same := true
	for i, v := range arguments {
		if rows[i] = -1; !engine.Internal(v).IsPerReplica() || v.Shape().Rank() == 0 {
			continue
		}
		rows[i] = v.Shape().Dimensions[0]
		if first < 0 {
			first, c.length = i, rows[i]
		}
		same = same && rows[i] == c.length
		switch {
		case !slices.ContainsFunc(engine.Internal(v).ReplicaShapes(),
			func(real []int) bool { return real[0] != rows[i] }):
			if full < 0 {
				full = i
			}
		case c.ragged < 0:
			c.ragged = i
		}
	}
	switch {
	case first < 0:
		return wrong("give the step a batch, or leave the option out", "no argument has rows")
	case c.ragged >= 0 && full >= 0:
		return wrong("give tensors of the same rows", "arguments %d and %d have other numbers of rows", c.ragged, full)
	case same && c.ragged < 0 && c.length <= c.n:
		c.n, c.size = c.length, 1
	case same:
		c.size = (c.length + c.n - 1) / c.n
		if c.padded = c.ragged >= 0 || c.length%c.n != 0; c.padded {
			c.size = max(c.size, 2) // an axis of size 1 would be broadcast
		}
		c.n = (c.length + c.size - 1) / c.size
	default:
		for i, n := range rows {
			if n >= 0 && n%c.n != 0 {
				return wrong(fmt.Sprintf("give it a multiple of %d rows for each replica, or all arguments equally many", c.n),
					"argument %d has %d rows, which do not divide, and argument %d has %d", i, n, first, c.length)
			}
		}
		c.size = c.length / c.n
	}
	return c, nil
}

// paddedRows returns a function that computes how many rows a microbatch has after padding, from a
// step's arguments. The function returns 0 if no microbatch is padded.
func paddedRows(s *strategy.TPUStrategy, microbatches int) func(arguments []strategy.Value) int {
	return func(arguments []strategy.Value) int {
		if c, err := splitMicrobatches(s, microbatches, arguments); err == nil && c.n > 1 && c.padded {
			return c.size
		}
		return 0
	}
}

// microbatch describes the current microbatch while the body of the loop over microbatches is
// traced.
type microbatch struct {
	real *graph.Node // number of rows without padding; nil if no rows are padding
	rows int         // number of rows with padding
	// meanWeight is the weight of the microbatch's mean in the replica's mean if no rows are padding.
	meanWeight float64
}

// sumOverMicrobatches builds a loop that runs body for n microbatches of the arguments, and returns
// the sums of the results of body. If there is only one microbatch, it calls body with the
// arguments and builds no loop.
func (t *trainer) sumOverMicrobatches(n int, arguments []*graph.Node,
	body func(in []*graph.Node) []*graph.Node) []*graph.Node {
	values := engine.Internal(t.rc).ArgumentValues()
	c, err := splitMicrobatches(t.rc.Strategy(), n, values)
	if err != nil {
		panic(err)
	}
	if c.n < 2 {
		return body(arguments)
	}
	l := &microbatchLoop{trainer: t, microbatchSplit: c, body: body, values: values}
	l.split(arguments)
	for {
		if sums, ok := l.tryTrace(); ok {
			return sums
		}
	}
}

// microbatchLoop is the state of one call of sumOverMicrobatches. The loop carries the variables
// that body writes from one iteration to the next. A trace of body may discover more such
// variables. The trace is therefore repeated until it discovers no more.
type microbatchLoop struct {
	*trainer
	microbatchSplit
	body   func(in []*graph.Node) []*graph.Node
	values []strategy.Value

	arguments []region.Argument
	first     *graph.Node // index of the first row of each microbatch
	real, all *graph.Node // rows without padding of this replica and of all replicas; nil without padding
	written   []*model.Variable
	held      []region.StepVariable
}

func (l *microbatchLoop) split(arguments []*graph.Node) {
	number := func(n int) *graph.Node { return constant(l.graph, dtypes.Int32, float64(n)) }
	switch {
	case l.padded && l.ragged >= 0:
		l.real = l.rc.ValidSize(l.ragged, 0)
		l.all = l.rc.AllReduce(strategy.Sum, l.real)
		l.common.Rows, l.common.AllRows = l.real, l.all
	case l.padded:
		l.real, l.all = number(l.length), number(l.length*l.rc.NumReplicasInSync())
	}
	l.first = graph.Iota(l.graph, shapes.Make(dtypes.Int32, l.n), 0)
	if l.padded {
		l.first = graph.MulScalar(l.first, float64(l.size))
	}
	l.arguments = []region.Argument{{Node: l.first, Mapping: region.Slice{N: l.n}, Name: "first row"}}
	for i, x := range arguments {
		a := region.Argument{Node: x, Mapping: region.Identity{}, Name: fmt.Sprintf("argument %d", i)}
		if engine.Internal(l.values[i]).IsPerReplica() && x.Rank() > 0 {
			a.Node, a.Mapping = l.stackRows(x), region.Slice{N: l.n}
		}
		l.arguments = append(l.arguments, a)
	}
}

// stackRows pads the rows of x and reshapes x so that its new leading axis is the index of the
// microbatch.
func (l *microbatchLoop) stackRows(x *graph.Node) *graph.Node {
	if !l.padded {
		return spmd.SplitMicrobatches(x, l.n, 0)
	}
	if more := l.n*l.size - l.length; more > 0 {
		axes := make([]graph.PadAxis, x.Rank())
		axes[0].End = more
		x = graph.Pad(x, graph.Const(x.Graph(), shapes.CastAsDType(0, x.DType())), axes...)
	}
	return spmd.SplitMicrobatches(x, l.n, l.common.MicrobatchRows)
}

// tryTrace traces the loop. The result ok is false if body wrote variables that the loop does not
// carry yet.
func (l *microbatchLoop) tryTrace() (sums []*graph.Node, ok bool) {
	g := l.graph
	target := g.Backend().(region.Target)
	writes := region.RecordWrites(target, g)
	outside := map[*model.Variable]*graph.Node{}
	for v := range l.store().IterVariables() {
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
	in := slices.Clone(l.arguments)
	for _, v := range l.written {
		in = append(in, region.Argument{Node: before(v), Mapping: region.Carry{}, Name: "variable " + v.Path()})
	}
	for _, h := range l.held {
		in = append(in, region.Argument{Node: writes.ValueBefore(h), Mapping: region.Carry{}, Name: "variable " +
			h.Name()})
	}
	rewind := precision.SaveCallCount(g)
	number := 0
	var all []*graph.Node
	func() {
		leave := l.enterBody()
		defer func() {
			leave()
			for v := range l.store().IterVariables() {
				if v.InUseByGraph(g) {
					v.SetNodeValue(before(v))
				}
			}
			writes.Restore()
		}()
		all, ok = region.TryTrace(target, region.Loop{N: l.n}, in, func(in []*graph.Node) ([]region.Result, bool) {
			results, ok := l.traceBody(in, writes, before)
			number = len(results) - len(l.written) - len(l.held)
			return results, ok
		})
	}()
	if !ok {
		rewind()
		return nil, false
	}
	for i, v := range l.written {
		v.SetNodeValue(all[number+i])
	}
	for i, h := range l.held {
		h.SetValue(all[number+len(l.written)+i])
	}
	return all[:number:number], true
}

// enterBody prepares the trainer for a trace of body. Call leave after the trace to restore the
// trainer.
func (l *microbatchLoop) enterBody() (leave func()) {
	l.slices = map[string]*graph.Node{}
	l.micro = &microbatch{rows: l.size, meanWeight: 1 / float64(l.n)}
	sums := []string{gomlxtrain.TrainerRegularizationLossGraphParamKey, gomlxtrain.TrainerMainLossGraphParamKey}
	for _, key := range sums { // terms of an abandoned trace cannot be removed
		path := model.JoinPath(gomlxtrain.TrainerAbsoluteScope, key)
		if old, found := model.GetGraphParam(l.graph, path); found {
			model.SetGraphParam(l.graph, path, graph.ScalarZero(l.graph, old.(*graph.Node).DType()))
		}
	}
	end := l.common.Enter()
	return func() {
		l.micro = nil
		end()
	}
}

// traceBody traces body inside the loop. If body writes variables that the loop does not carry, traceBody
// adds these variables to the loop for the next trace and returns false.
func (l *microbatchLoop) traceBody(in []*graph.Node, writes *region.WriteRecorder,
	before func(v *model.Variable) *graph.Node) (results []region.Result, ok bool) {
	take := func(n int) (list []*graph.Node) {
		list, in = in[:n:n], in[n:]
		return list
	}
	first := take(1)[0]
	if l.padded {
		zero, rows := constant(l.graph, dtypes.Int32, 0), constant(l.graph, dtypes.Int32, float64(l.size))
		l.micro.real = spmd.MarkRealRows(graph.Clip(graph.Sub(l.real, first), zero, rows))
		l.common.Rows, l.common.AllRows = l.micro.real, l.all
	}
	arguments := l.setArguments(take(len(l.arguments) - 1))
	entered := map[*model.Variable]*graph.Node{}
	for _, v := range l.written {
		entered[v] = take(1)[0]
		v.SetNodeValue(entered[v])
	}
	was := take(len(l.held))
	for i, h := range l.held {
		writes.SetStart(h, was[i])
	}
	sums := l.body(arguments)
	ok = true
	for v := range l.store().IterVariables() {
		if v.InUseByGraph(l.graph) && entered[v] == nil && v.NodeValue(l.graph) != before(v) &&
			l.findProxy(v.Path()) == nil {
			l.written, ok = append(l.written, v), false
		}
	}
	for _, h := range writes.Written() {
		if !slices.Contains(l.held, h) {
			l.held, ok = append(l.held, h), false
		}
	}
	if !ok {
		return nil, false
	}
	for i, x := range sums {
		results = append(results, region.Result{Node: x, Mapping: region.Identity{}, Name: fmt.Sprintf("sum %d", i)})
	}
	for _, v := range l.written {
		now := v.NodeValue(l.graph)
		if l.padded && v.DType().IsFloat() && now != entered[v] { // padding does not change variables
			now = selectIfRows(l.micro.real, now, entered[v])
		}
		results = append(results, region.Result{Node: now, Mapping: region.Carry{}, Name: "variable " + v.Path()})
	}
	for i, h := range l.held {
		now := h.Value()
		if apart, ok := h.(interface{ PerReplica() bool }); ok && l.padded && apart.PerReplica() {
			now = selectIfRows(l.micro.real, now, was[i])
		}
		results = append(results, region.Result{Node: now, Mapping: region.Carry{}, Name: "variable " + h.Name()})
	}
	return results, true
}

// setArguments replaces the step's arguments by the rows of a microbatch, with the same sharding.
func (l *microbatchLoop) setArguments(in []*graph.Node) []*graph.Node {
	sizes := map[int]*graph.Node{}
	of := l.common.Sizes
	for i, x := range in {
		if real, ok := of[i]; ok {
			sizes[i] = real
		}
		if _, sliced := l.arguments[i+1].Mapping.(region.Slice); !sliced {
			continue
		}
		if a := l.values[i].Annotation(); a.Kind() == logical.KindSplit && l.divides(a, x.Shape().Dimensions) {
			in[i] = logical.Apply(x, a)
		}
		if !l.padded {
			continue
		}
		sizes[i] = graph.Reshape(l.micro.real, 1)
		if x.Rank() > 1 {
			others, ok := of[i]
			if ok {
				others = graph.Slice(others, graph.AxisRange(1))
			} else {
				others = graph.Const(l.graph, toInt32s(x.Shape().Dimensions[1:]))
			}
			sizes[i] = graph.Concatenate([]*graph.Node{sizes[i], others}, 0)
		}
	}
	l.common.Arguments, l.common.Sizes = in, sizes
	return in
}

func toInt32s(dims []int) []int32 {
	all := make([]int32, len(dims))
	for i, n := range dims {
		all[i] = int32(n)
	}
	return all
}

// divides reports whether an annotation splits each dimension of a tensor evenly.
func (l *microbatchLoop) divides(a logical.Annotation, dims []int) bool {
	for d, parts := range a.PartsOn(l.rc.Strategy().LogicalMesh()) {
		if d >= len(dims) || parts > 0 && dims[d]%parts != 0 {
			return false
		}
	}
	return true
}
