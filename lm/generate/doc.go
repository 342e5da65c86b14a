// Package generate continues prompts with the tokens that a language model expects, on the devices
// of a strategy. Keys and values of the tokens before are kept there, in a cache, so that each
// further token costs one token's work.
//
// # A model
//
// A model is one function, for training and for generation. Its attention layers ask the cache,
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
// Its loss calls logits(rc, tokens, nil). [Cache.Attend] is causal attention with or without a
// cache, also for fewer heads of keys than of queries; [Cache.Update] is for an attention of your
// own. Layers may be one after another or in a loop, and split over the logical devices as in
// training.
//
// # Generating
//
//	g, err := generate.New(strat, store, logits, generate.Options{
//		Layers: 4, KeyHeads: 2, HeadSize: 16, Vocabulary: 256, Length: 128,
//	})
//	out, err := g.Generate(ctx, [][]int32{prompt}, generate.Sampling{MaxTokens: 50, Temperature: 0.8, TopK: 40})
//
// A generator reads the variables that the store has on the devices: between the training steps of
// the same process they are those of the last step, and after a restored checkpoint those of the
// checkpoint. The numbers are those of a forward pass over the whole sequence, up to rounding.
//
// To generate with the averages that a training step keeps (train.Options.Average), call the model
// within train.Averaged.
//
// The prompts of a call are cut over the replicas, and may differ in number and in length. An
// output does not depend on the other prompts, on the mesh or on the batch; random numbers are a
// function of the seed, of the prompt's number in the call and of the token's place.
//
// # Models with caches of their own
//
// [Cache.Layer] and [Cache.SetLayer] hand a layer's keys and values to a model that updates a cache
// by itself, with [Cache.Slot] for its position and [Cache.Filled] for its mask. GoMLX's
// transformers (ml/zoo/transformer: Llama's and Gemma's forms) run so, with prompts of different
// lengths, as long as their positions are rotary: their cache has one position for all rows. Such a
// model writes the whole of a layer's cache for each token, which [Cache.Attend] does not.
//
//	nodes := transformer.KVCacheNodes{}
//	for i, scope := range m.KVCache.OrderedScopes { // after m.PopulateKVCacheConfigs
//		nodes[scope+kvcache.KeySuffix], nodes[scope+kvcache.ValueSuffix] = cache.Layer(i)
//	}
//	logits, nodes := m.Forward(tokens, transformer.CallOptions{PositionIds: cache.Slot(), AttentionMask: cache.Filled(), Cache: nodes})
//	for i, scope := range m.KVCache.OrderedScopes {
//		keys, values := m.KVCache.Get(nodes, scope)
//		cache.SetLayer(i, keys, values)
//	}
//
// Their KVCache has no sinks and Options.Length + Options.PromptChunk as its greatest length.
//
// # What runs
//
// A session compiles two programs, whatever the lengths of its prompts, and one more for each
// further kind of sampling: with or without random numbers, TopK and TopP. One reads
// Options.PromptChunk tokens of each prompt at a time. The other makes tokens in a loop on the
// devices, until it has made Options.Chunk of each row or all rows have ended. The host receives
// the tokens of a launch, and nothing else; the cache is updated in place.
//
// A device holds its share of the cache, the keys and the values of
// Layers * rows * KeyHeads * (Length + PromptChunk) * HeadSize elements of Options.DType, where
// rows are those of its replica and the heads are split over the logical devices.
package generate
