package generate

import (
	"context"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A generator has two programs. The first reads a chunk of the prompts into the cache, without the
// last token of each prompt. The second runs in a loop on the devices and generates tokens,
// starting with the last token of the prompt. Prompts are padded at their beginning, so that all
// rows write to the same slot of the cache.

// decodeProgram is the compiled program that generates tokens with one variant of sampling.
type decodeProgram struct {
	function *strategy.Function
	binding  *strategy.Binding // nil before the first launch
}

// prefillStep is the step function that reads a chunk of the prompts into the cache. in[0] are the
// tokens, int32 [rows, chunk]. The other inputs are the state of the rows and the slot of the
// chunk's first token.
func (g *Generator) prefillStep(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
	t := g.state
	tokens, start := in[0], in[5]
	for i, v := range []*strategy.Variable{t.rowState, t.seed, t.samplingParams, t.stop} {
		rc.Assign(v, in[1+i])
	}
	g.computeLogits(rc, tokens, start)
	rc.Assign(t.slot, graph.AddScalar(start, t.opts.PromptTokensPerLaunch))
	rc.Assign(t.count, int32(0))
	return []*graph.Node{rc.Read(t.layer)}
}

// computeLogits runs the model on tokens. slot is the cache slot of the first token.
func (g *Generator) computeLogits(rc *strategy.ReplicaContext, tokens, slot *graph.Node) *graph.Node {
	t, o := g.state, g.opts
	c := &Cache{rc: rc, deviceState: t, tokens: tokens.Shape().Dim(1), slot: slot,
		padding: sliceColumn(rc.Read(t.rowState), 1)}
	checkStore := g.newVariableCheck()
	out := o.Precision.Forward(rc.Graph(), []*graph.Node{tokens}, func(in []*graph.Node) []*graph.Node {
		c.resetLayers()
		return []*graph.Node{g.model(rc, in[0], c)}
	})[0]
	c.checkCalls()
	checkStore()
	want := append(append([]int{}, tokens.Shape().Dimensions...), o.Vocabulary)
	if out == nil || !out.DType().IsFloat() || !slices.Equal(out.Shape().Dimensions, want) {
		shape := "nothing"
		if out != nil {
			shape = out.Shape().String()
		}
		panicValueError("model", "return the logits of all tokens of the argument",
			"it returns %s, not floats of %v (rows, tokens, vocabulary)", shape, want)
	}
	return out
}

// newDecodeStep returns the step function that generates one token for each row.
func (g *Generator) newDecodeStep(v samplingVariant) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		t := g.state
		row, slot, count := rc.Read(t.rowState), rc.Read(t.slot), rc.Read(t.count)
		token, pad, remaining := sliceColumn(row, 0), sliceColumn(row, 1), sliceColumn(row, 2)
		logits := g.computeLogits(rc, graph.InsertAxes(token, -1), slot)
		logits = logical.Replicate(graph.ConvertDType(graph.Squeeze(logits, 1), dtypes.Float32))
		position := graph.Sub(graph.BroadcastToShape(slot, pad.Shape()), pad)
		var seed, params *graph.Node
		if v.isRandom {
			seed, params = rc.Read(t.seed), rc.Read(t.samplingParams)
		}
		next := v.sampleTokens(logits, seed, params, position)

		zeros, ones := graph.ZerosLike(remaining), graph.OnesLike(remaining)
		active := graph.GreaterThan(remaining, zeros)
		next = graph.Where(active, next, zeros)
		bad := graph.LessThan(next, zeros)
		valid := graph.Max(next, zeros)
		ends := graph.LogicalOr(bad, graph.Gather(rc.Read(t.stop), graph.InsertAxes(valid, -1)))
		remaining = graph.Where(ends, zeros, graph.Max(graph.Sub(remaining, ones), zeros))
		zero := graph.Const(rc.Graph(), int32(0))
		generated := rc.Assign(t.generated, graph.DynamicUpdateSlice(rc.Read(t.generated), graph.InsertAxes(next, -1),
			[]*graph.Node{zero, count}))
		rc.Assign(t.rowState, graph.Stack([]*graph.Node{valid, pad, remaining}, -1))
		rc.Assign(t.slot, graph.AddScalar(slot, 1))
		if t.opts.TokensPerLaunch == 1 {
			return []*graph.Node{generated}
		}
		full := graph.Equal(graph.AddScalar(count, 1), graph.Const(rc.Graph(), int32(t.opts.TokensPerLaunch)))
		rc.Assign(t.count, graph.Where(full, zero, graph.AddScalar(count, 1)))
		// All replicas continue while one has tokens left to generate.
		remainingSum := rc.AllReduce(strategy.Sum, graph.Where(full, zero, graph.ReduceAllSum(remaining)))
		return []*graph.Node{graph.GreaterThan(remainingSum, zero), generated}
	}
}

// sliceColumn returns column i, [rows], of a tensor [rows, n].
func sliceColumn(x *graph.Node, i int) *graph.Node {
	return graph.Squeeze(graph.Slice(x, graph.AxisRange(), graph.AxisElem(i)), 1)
}

func (g *Generator) decodeProgramFor(v samplingVariant) *decodeProgram {
	d := g.decodePrograms[v]
	if d == nil {
		d = &decodeProgram{function: g.strategy.Function(g.newDecodeStep(v),
			strategy.FunctionOptions{Name: "generate_tokens", Store: g.store})}
		if chunk := g.state.opts.TokensPerLaunch; chunk > 1 {
			engine.Internal(d.function).SetMaxIterations(chunk)
		}
		g.decodePrograms[v] = d
	}
	return d
}

// bindVariables binds the program to its variables before the first launch.
func (d *decodeProgram) bindVariables(ctx context.Context) (_ *strategy.Binding, err error) {
	if d.binding == nil {
		d.binding, err = d.function.Bind(ctx)
	}
	return d.binding, err
}

// newVariableCheck records which variables are in the store before the model is traced. Call check
// after the trace: it panics with an error if the store already had trained variables and the model
// has created further ones, because then the model does not use the trained variables.
func (g *Generator) newVariableCheck() (check func()) {
	known, trained := map[string]bool{}, false
	for v := range g.store.IterVariables() {
		known[v.Path()] = true
		trained = trained || v.Trainable
	}
	return func() {
		for v := range g.store.IterVariables() {
			if trained && !known[v.Path()] {
				panicValueError("model", "pass the store that the model was trained with, and build the model in the same scope",
					"it creates the variable %q, but the store already has trained variables of another model", v.Path())
			}
		}
	}
}
