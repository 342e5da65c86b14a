package generate

import (
	"context"
	"errors"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Model builds the logits of tokens: which token follows each. It is a language model's one
// function, for training and for generation. tokens are int32 [rows, n], and the logits floats
// [rows, n, vocabulary]. Attention goes through the cache, which is nil in training.
//
// n is 1 where tokens are made. GoMLX's layers.Embedding takes a last dimension of 1 for one of
// indices: give it graph.InsertAxes(tokens, -1).
type Model func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *Cache) *graph.Node

// Options describe a generator. Layers, KeyHeads, HeadSize, Vocabulary and Length have no defaults.
type Options struct {
	// Layers is how many attention layers the model has, KeyHeads how many heads of keys and values
	// each of them, and HeadSize the size of such a head.
	Layers, KeyHeads, HeadSize int
	// Vocabulary is the number of tokens that there are.
	Vocabulary int
	// Length is the greatest number of tokens of a row: its prompt and what is generated.
	Length int
	// Batch is how many prompts are generated from at a time, over all replicas; more are taken in
	// turns. It is rounded up to a multiple of the replicas. 0 is the number of prompts of the first
	// call.
	Batch int
	// Chunk is how many tokens of each row a launch makes at most: they are copied to the host, and
	// streamed, together. 0 is 32.
	Chunk int
	// PromptChunk is how many tokens of each prompt a launch reads. 0 is 64, or Length if that is
	// less.
	PromptChunk int
	// DType is that of the cache; the zero value is Precision.Compute, or Float32 without it.
	DType dtypes.DType
	// Precision says in which dtypes the model computes, as train.Options.Precision does.
	Precision precision.Policy
	// Split says how the cache is split over the logical devices. Its tensors have a replica's
	// [layers, rows, key heads, length, head size]. The zero value splits the heads, if their number
	// divides, and otherwise keeps the cache whole on each.
	Split logical.Annotation
}

// Generator generates text with a model whose variables are on the devices. It is safe for
// concurrent use; calls take turns.
type Generator struct {
	strategy *strategy.TPUStrategy
	store    *model.Store
	model    Model
	opts     Options

	turn chan struct{} // holds one token
	// What follows is guarded by turn. It is made by the first call.
	state    *state
	prompts  *strategy.Function
	decoders map[variant]*decoder
	counted  bool // the model's layers were
	closed   bool
}

// state is what lives on the devices between launches. Each replica has its own rows.
type state struct {
	opts   Options
	rows   int // of a replica
	length int // of the cache: slots
	all    []*strategy.Variable

	keys, values *strategy.Variable // [layers, rows, key heads, length, head size]
	layer        *strategy.Variable // scalar: the next layer's number
	slot         *strategy.Variable // scalar: the slot of the tokens at hand
	made         *strategy.Variable // [rows, chunk]: the tokens of the launch
	count        *strategy.Variable // scalar: how many tokens there are in made
	row          *strategy.Variable // [rows, 3]: the last token, padding, and how many tokens are left to make
	seed         *strategy.Variable // [rows, 2]
	knobs        *strategy.Variable // [rows, 3]: temperature, top k, top p
	stop         *strategy.Variable // [vocabulary]: whether a token ends its row
}

// New returns a generator of a model over the variables of store, which a training step over the
// same store may go on to change: each call uses the variables as they are then. Nothing is
// compiled yet.
func New(s *strategy.TPUStrategy, store *model.Store, m Model, opts Options) (*Generator, error) {
	switch {
	case s == nil:
		return nil, fault("new", "give it the strategy that has the model's variables", "there is no strategy: it is nil")
	case store == nil:
		return nil, fault("new", "give it the store of the model's variables", "there is no store: it is nil")
	case m == nil:
		return nil, fault("new", "give it the function of the model", "there is no model: it is nil")
	}
	if err := opts.fill(s); err != nil {
		return nil, err
	}
	return &Generator{strategy: s, store: store, model: m, opts: opts, turn: make(chan struct{}, 1), decoders: map[variant]*decoder{}}, nil
}

// enter waits for the call's turn. leave ends it.
func (g *Generator) enter(ctx context.Context, prompts int) (leave func(), err error) {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave = func() { <-g.turn }
	if g.closed {
		leave()
		return nil, strategy.ErrClosed
	}
	if g.state == nil {
		if err := g.begin(ctx, prompts); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// begin makes the state on the devices.
func (g *Generator) begin(ctx context.Context, prompts int) error {
	o := g.opts
	if o.Batch == 0 {
		o.Batch = prompts
	}
	t := &state{opts: o, rows: o.rows(g.strategy), length: o.Length + o.PromptChunk}
	kept := shapes.Make(o.DType, o.Layers, t.rows, o.KeyHeads, t.length, o.HeadSize)
	i32 := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Int32, dims...) }
	of := []struct {
		v     **strategy.Variable
		name  string
		shape shapes.Shape
	}{
		{&t.keys, "generate/keys", kept}, {&t.values, "generate/values", kept},
		{&t.layer, "generate/layer", i32()}, {&t.slot, "generate/slot", i32()},
		{&t.made, "generate/made", i32(t.rows, o.Chunk)}, {&t.count, "generate/count", i32()},
		{&t.row, "generate/row", i32(t.rows, 3)},
		{&t.seed, "generate/seed", shapes.Make(dtypes.Uint32, t.rows, 2)},
		{&t.knobs, "generate/knobs", shapes.Make(dtypes.Float32, t.rows, 3)},
		{&t.stop, "generate/stop", shapes.Make(dtypes.Bool, o.Vocabulary)},
	}
	var dims []shapes.Shape
	var opts []strategy.VariableOptions
	for i, x := range of {
		dims, opts = append(dims, x.shape), append(opts, strategy.VariableOptions{Name: x.name})
		if i < 2 {
			opts[i].Annotation = o.Split
		}
	}
	var err error
	if t.all, err = inside.Of[machine](g.strategy).State(ctx, dims, opts); err != nil {
		return err
	}
	for i, x := range of {
		*x.v = t.all[i]
	}
	g.state = t
	g.prompts = g.strategy.Function(g.readPrompts, strategy.FunctionOptions{Name: "generate_prompts", Store: g.store, SplitBatch: true})
	return nil
}

// Close releases what the generator has on the devices. The model's variables stay.
func (g *Generator) Close() error {
	if g == nil || g.turn == nil {
		return nil
	}
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	g.closed = true
	return g.drop()
}

// drop gives up the state and the programs over it; the next call makes them anew.
func (g *Generator) drop() error {
	var errs []error
	for _, d := range g.decoders {
		if d.bound != nil {
			errs = append(errs, d.bound.Close())
		}
		errs = append(errs, d.function.Close())
	}
	if g.state != nil {
		errs = append(errs, g.prompts.Close())
		for _, v := range g.state.all {
			errs = append(errs, v.Close())
		}
	}
	g.state, g.decoders = nil, map[variant]*decoder{}
	return errors.Join(errs...)
}
