package generate

import (
	"context"
	"errors"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// ModelFunc returns, for each token, the logits of the token that follows it. The same function is
// used for training and for generation. tokens are int32 [rows, n], and the logits are floats
// [rows, n, vocabulary]. Attention layers use the cache, which is nil in training.
//
// n is 1 while tokens are generated. GoMLX's layers.Embedding interprets a last dimension of 1 as a
// dimension of indices: pass graph.InsertAxes(tokens, -1) to it.
type ModelFunc func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *Cache) *graph.Node

// Options configure a generator. Layers, KeyHeads, HeadSize, Vocabulary and MaxLength are required.
type Options struct {
	// Layers is the number of attention layers, KeyHeads is the number of key and value heads of a
	// layer, and HeadSize is the size of a head.
	Layers, KeyHeads, HeadSize int
	// Vocabulary is the number of different tokens.
	Vocabulary int
	// MaxLength is the maximum number of tokens of a row, including its prompt.
	MaxLength int
	// BatchSize is the number of prompts that are processed at a time, over all replicas. It is
	// rounded up to a multiple of the number of replicas. More prompts are processed in several
	// rounds. 0 means the number of prompts of the first call.
	BatchSize int
	// TokensPerLaunch is the maximum number of tokens that a launch generates for each row. They
	// are copied to the host, and streamed, together. 0 means 32.
	TokensPerLaunch int
	// PromptTokensPerLaunch is the number of tokens of each prompt that a launch reads. 0 means 64,
	// or MaxLength if that is less.
	PromptTokensPerLaunch int
	// DType is the dtype of the cache. The default is Precision.Compute, or Float32 without it.
	DType dtypes.DType
	// Precision specifies the dtypes of the computation, like train.Options.Precision.
	Precision precision.Policy
	// CacheSharding specifies the sharding of the cache over the logical devices. The cache's
	// tensors have the shape [layers, rows, key heads, length, head size] on a replica. The zero
	// value shards the heads if the number of logical devices divides their number, and otherwise
	// replicates the cache.
	CacheSharding logical.Annotation
}

// Generator generates text with a model whose variables are on the devices. It is safe for
// concurrent use, but concurrent calls run one after the other.
type Generator struct {
	strategy *strategy.TPUStrategy
	store    *model.Store
	model    ModelFunc
	opts     Options

	lock chan struct{} // a mutex: contains one value while locked
	// lock protects the following fields. The first call initializes them.
	state           *deviceState
	prefillFunction *strategy.Function
	decodePrograms  map[samplingVariant]*decodeProgram
	layersChecked   bool // the number of the model's layers was checked
	closed          bool
}

// deviceState contains the variables that keep the state of the generation between launches.
type deviceState struct {
	opts      Options
	rows      int // rows of a replica
	length    int // number of slots of the cache
	variables []*strategy.Variable

	keys, values   *strategy.Variable // [layers, rows, key heads, length, head size]
	layer          *strategy.Variable // scalar: number of the next layer
	slot           *strategy.Variable // scalar: slot of the current tokens
	generated      *strategy.Variable // [rows, chunk]: tokens of the launch
	count          *strategy.Variable // scalar: number of tokens in generated
	rowState       *strategy.Variable // [rows, 3]: last token, padding, and remaining number of tokens
	seed           *strategy.Variable // [rows, 2]
	samplingParams *strategy.Variable // [rows, 3]: temperature, top k, top p
	stop           *strategy.Variable // [vocabulary]: whether a token ends its row
}

// New returns a generator for a model with the variables of store. A training step may continue to
// change the variables: each call uses their current values. New compiles nothing.
func New(s *strategy.TPUStrategy, store *model.Store, m ModelFunc, opts Options) (*Generator, error) {
	switch {
	case s == nil:
		return nil, valueError("new", "pass the strategy of the model's variables", "the strategy is nil")
	case store == nil:
		return nil, valueError("new", "pass the store of the model's variables", "the store is nil")
	case m == nil:
		return nil, valueError("new", "pass the function of the model", "the model is nil")
	}
	if err := opts.setDefaults(s); err != nil {
		return nil, err
	}
	return &Generator{strategy: s, store: store, model: m, opts: opts, lock: make(chan struct{}, 1),
		decodePrograms: map[samplingVariant]*decodeProgram{}}, nil
}

// lockState locks the generator and creates its state in the first call. unlock unlocks it.
func (g *Generator) lockState(ctx context.Context, prompts int) (unlock func(), err error) {
	select {
	case g.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	unlock = func() { <-g.lock }
	if g.closed {
		unlock()
		return nil, &strategy.Error{Op: "generate", Reason: "the generator is closed", Match: strategy.ErrClosed,
			Hint: "close it after its last call"}
	}
	if g.state == nil {
		if err := g.initState(ctx, prompts); err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

func (g *Generator) initState(ctx context.Context, prompts int) error {
	o := g.opts
	if o.BatchSize == 0 {
		o.BatchSize = prompts
	}
	t := &deviceState{opts: o, rows: o.rowsPerReplica(g.strategy), length: o.MaxLength + o.PromptTokensPerLaunch}
	cacheShape := shapes.Make(o.DType, o.Layers, t.rows, o.KeyHeads, t.length, o.HeadSize)
	i32 := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Int32, dims...) }
	fields := []struct {
		v     **strategy.Variable
		name  string
		shape shapes.Shape
	}{
		{&t.keys, "generate/keys", cacheShape}, {&t.values, "generate/values", cacheShape},
		{&t.layer, "generate/layer", i32()}, {&t.slot, "generate/slot", i32()},
		{&t.generated, "generate/made", i32(t.rows, o.TokensPerLaunch)}, {&t.count, "generate/count", i32()},
		{&t.rowState, "generate/row", i32(t.rows, 3)},
		{&t.seed, "generate/seed", shapes.Make(dtypes.Uint32, t.rows, 2)},
		{&t.samplingParams, "generate/knobs", shapes.Make(dtypes.Float32, t.rows, 3)},
		{&t.stop, "generate/stop", shapes.Make(dtypes.Bool, o.Vocabulary)},
	}
	var dims []shapes.Shape
	var opts []strategy.VariableOptions
	for i, x := range fields {
		dims, opts = append(dims, x.shape), append(opts, strategy.VariableOptions{Name: x.name})
		if i < 2 {
			opts[i].Annotation = o.CacheSharding
		}
	}
	var err error
	if t.variables, err = engine.Internal(g.strategy).NewZeroVariables(ctx, dims, opts); err != nil {
		return err
	}
	for i, x := range fields {
		*x.v = t.variables[i]
	}
	g.state = t
	g.prefillFunction = g.strategy.Function(g.prefillStep, strategy.FunctionOptions{Name: "generate_prompts",
		Store: g.store, SplitBatch: true})
	return nil
}

// Close releases the generator's memory on the devices. It does not affect the model's variables.
func (g *Generator) Close() error {
	if g == nil || g.lock == nil {
		return nil
	}
	g.lock <- struct{}{}
	defer func() { <-g.lock }()
	g.closed = true
	return g.releaseState()
}

// releaseState releases the state and its programs. The next call creates them again.
func (g *Generator) releaseState() error {
	var errs []error
	for _, d := range g.decodePrograms {
		if d.binding != nil {
			errs = append(errs, d.binding.Close())
		}
		errs = append(errs, d.function.Close())
	}
	if g.state != nil {
		errs = append(errs, g.prefillFunction.Close())
		for _, v := range g.state.variables {
			errs = append(errs, v.Close())
		}
	}
	g.state, g.decodePrograms = nil, map[samplingVariant]*decodeProgram{}
	return errors.Join(errs...)
}
