// Package generate generates text with a language model on the devices of a strategy. A cache on
// the devices stores the keys and values of earlier tokens, so that each new token only costs the
// work of one token.
//
// # A model
//
// One function defines a model for training and for generation. Its attention layers use the cache,
// which is nil in training:
//
//	func logits(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
//		positions := cache.Positions(tokens)
//		x := layers.Embedding(rc.Scope("tokens"), graph.InsertAxes(tokens, -1), dtypes.Float32, vocabulary, width)
//		x = loop.Layers(rc.Scope("layers"), 4, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
//			q, k, v := project(scope, x) // [rows, n, heads, size]
//			q, k = generate.Rotary(q, positions, 10000), generate.Rotary(k, positions, 10000)
//			return graph.Add(x, output(scope, cache.Attend(q, k, v)))
//		}, loop.Options{})
//		return layers.Dense(rc.Scope("head"), x, true, vocabulary)
//	}
//
// The loss function calls logits(rc, tokens, nil). [Cache.Attend] is causal attention with or
// without a cache, and supports fewer key heads than query heads. [Cache.Update] is the basis for
// custom attention. The layers may be unrolled or in a loop, and may be sharded over the logical
// devices as in training.
//
// # Generating
//
//	g, err := generate.New(strat, store, logits, generate.Options{
//		Layers: 4, KeyHeads: 2, HeadSize: 16, Vocabulary: 256, MaxLength: 128,
//	})
//	out, err := g.Generate(ctx, [][]int32{prompt}, generate.Sampling{MaxTokens: 50, Temperature: 0.8, TopK: 40})
//
// A generator reads the current values of the store's variables on the devices: between training
// steps in the same process these are the values of the last step, and after a restore the values
// of the checkpoint. The logits equal the logits of a forward pass over the complete sequence, up
// to rounding.
//
// To generate with the weight averages of a training step (train.Options.Average), call the model
// within train.Averaged.
//
// The prompts of a call are distributed over the replicas, and may differ in length. An output does
// not depend on the other prompts, the mesh or the batch size: random numbers are a function of the
// seed, the index of the prompt in the call and the position of the token.
//
// # Models with their own caches
//
// [Cache.Layer] and [Cache.SetLayer] pass the keys and values of a layer to a model that updates
// its cache itself, with [Cache.Slot] for the position and [Cache.ValidSlots] for the mask. GoMLX's
// transformers (ml/zoo/transformer, which implements Llama and Gemma) work in this way, also with
// prompts of different lengths if their positions are rotary: their cache has one position for all
// rows. Such a model writes the complete cache of a layer for each token, which [Cache.Attend] does
// not.
//
//	nodes := transformer.KVCacheNodes{}
//	for i, scope := range m.KVCache.OrderedScopes { // after m.PopulateKVCacheConfigs
//		nodes[scope+kvcache.KeySuffix], nodes[scope+kvcache.ValueSuffix] = cache.Layer(i)
//	}
//	logits, nodes := m.Forward(tokens, transformer.CallOptions{
//		PositionIds: cache.Slot(), AttentionMask: cache.ValidSlots(), Cache: nodes})
//	for i, scope := range m.KVCache.OrderedScopes {
//		keys, values := m.KVCache.Get(nodes, scope)
//		cache.SetLayer(i, keys, values)
//	}
//
// Their KVCache must have no sinks, and Options.MaxLength + Options.PromptTokensPerLaunch as its
// maximum length.
//
// # Programs and memory
//
// A generator compiles two programs, independent of the lengths of the prompts, and one more
// program for each additional kind of sampling: with or without random numbers, TopK and TopP. The
// first program reads Options.PromptTokensPerLaunch tokens of each prompt per launch. The second
// generates tokens in a loop on the devices, until it has generated Options.TokensPerLaunch tokens
// of each row or all rows have ended. Only the tokens of a launch are copied to the host. The cache
// is updated in place.
//
// The keys and the values of the cache each have the shape [Layers, rows, KeyHeads, MaxLength +
// PromptTokensPerLaunch, HeadSize] and the dtype Options.DType, where rows is the number of rows of a
// replica. The heads are sharded over the replica's logical devices if possible; see
// Options.CacheSharding.
package generate
