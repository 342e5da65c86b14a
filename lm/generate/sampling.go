package generate

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Sampling configures how tokens are selected. If only MaxTokens is set, the most likely token is
// always selected.
type Sampling struct {
	// MaxTokens is the maximum number of generated tokens for each prompt. The prompt and these
	// tokens must fit in Options.MaxLength.
	MaxTokens int
	// Temperature divides the logits: values below 1 make likely tokens more likely. 0 selects the
	// most likely token without random numbers.
	Temperature float64
	// TopK restricts the sampling to the k most likely tokens, and to tokens as likely as the last
	// of them; 0 means all tokens.
	TopK int
	// TopP restricts the sampling, after TopK, to the most likely tokens whose probabilities add up
	// to p, including the token with which the sum reaches p; 0 and 1 mean all tokens.
	TopP float64
	// Seed is the seed of the random numbers. They depend only on the seed, the index of the prompt
	// in the call and the position of the token, so they are the same for each mesh and batch size.
	Seed uint64
	// Stop contains the tokens that end an output. They are not part of the output.
	Stop []int32
	// Stream, if not nil, is called after each launch with the new tokens of each prompt that has
	// some, in the order of the prompts. An error of Stream ends the call.
	Stream func(prompt int, tokens []int32) error
}

func (s *Sampling) validate(o *Options) error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return valueError("Sampling.Temperature", "use 0 for the most likely token, or a positive number for a random token",
			"it is %v", s.Temperature)
	case s.TopK < 0 || s.TopK > o.Vocabulary:
		return valueError("Sampling.TopK", "use 0 for all tokens", "it is %d, but the vocabulary has %d tokens", s.TopK,
			o.Vocabulary)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return valueError("Sampling.TopP", "use a probability, or 0 for all tokens", "it is %v", s.TopP)
	case s.Temperature == 0 && (s.TopK > 0 || s.TopP > 0):
		return valueError("Sampling.Temperature", "set it, to 1 for the model's own probabilities",
			"it is 0, which selects the most likely token, but TopK or TopP is set")
	}
	for _, token := range s.Stop {
		if o.isUnknownToken(token) {
			return valueError("Sampling.Stop", "use the model's tokens", "token %d, but the vocabulary has %d tokens", token,
				o.Vocabulary)
		}
	}
	return nil
}

// samplingVariant contains the properties of a Sampling that require different compiled programs.
type samplingVariant struct{ isRandom, hasTopK, hasTopP bool }

func (s *Sampling) variant() samplingVariant {
	return samplingVariant{s.Temperature > 0, s.TopK > 0, s.TopP > 0 && s.TopP < 1}
}

// sampleTokens selects a token for each row of logits, Float32 [rows, vocabulary]. It returns int32
// [rows], with -1 for a row that contains a NaN. params contains the temperature, top k and top p,
// [rows, 3]. seed is [rows, 2], and position is the position of each row's token, int32 [rows].
func (v samplingVariant) sampleTokens(logits, seed, params, position *graph.Node) *graph.Node {
	bad := graph.ReduceLogicalOr(graph.NotEqual(logits, logits), -1)
	x := logits
	if v.isRandom {
		param := func(i int) *graph.Node { return graph.Slice(params, graph.AxisRange(), graph.AxisElem(i)) } // [rows, 1]
		broadcast := func(column *graph.Node) *graph.Node { return graph.BroadcastToDims(column, x.Shape().Dimensions...) }
		x = graph.Div(graph.Sub(x, broadcast(graph.ReduceAndKeep(x, graph.ReduceMax, -1))), broadcast(param(0)))
		never := graph.Infinity(x.Graph(), dtypes.Float32, -1)
		keepAbove := func(weights, sum *graph.Node) {
			keys := toOrderedBits(x)
			x = graph.Where(graph.GreaterOrEqual(keys, broadcast(weightThreshold(keys, weights, sum))), x,
				graph.BroadcastToDims(never, x.Shape().Dimensions...))
		}
		if v.hasTopK {
			keepAbove(graph.OnesLike(x), param(1))
		}
		if v.hasTopP {
			p := graph.Exp(x)
			keepAbove(p, graph.Mul(param(2), graph.ReduceAndKeep(p, graph.ReduceSum, -1)))
		}
		x = graph.Add(x, gumbelNoise(seed, position, x.Shape().Dim(-1)))
	}
	token := graph.ArgMax(x, -1, dtypes.Int32)
	return graph.Where(bad, graph.BroadcastToShape(graph.Const(x.Graph(), int32(-1)), token.Shape()), token)
}

// toOrderedBits converts Float32 values to Uint32 values with the same order.
func toOrderedBits(x *graph.Node) *graph.Node {
	g := x.Graph()
	bits := graph.Bitcast(x, dtypes.Uint32)
	sign := graph.BroadcastToShape(graph.Const(g, uint32(1<<31)), bits.Shape())
	negative := graph.GreaterOrEqual(bits, sign)
	return graph.Where(negative, graph.BitwiseNot(bits), graph.BitwiseOr(bits, sign))
}

// weightThreshold returns, for each row, the largest number t such that the keys >= t have a total
// weight of at least sum. keys and weights are [rows, n], and the result is [rows, 1]. t is
// computed bit by bit, without sorting the keys.
func weightThreshold(keys, weights, sum *graph.Node) *graph.Node {
	g := keys.Graph()
	zeros, none := graph.ZerosLike(weights), graph.Const(g, uint32(0))
	one := graph.Const(g, uint32(1))
	start := graph.Zeros(g, shapes.Make(dtypes.Uint32, keys.Shape().Dim(0), 1))
	parameters := func(g *graph.Graph) (bit, found *graph.Node) {
		return graph.Parameter(g, "bit", one.Shape()), graph.Parameter(g, "found", start.Shape())
	}
	hasMoreBits := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
		bit, _ := parameters(g)
		return []*graph.Node{graph.NotEqual(bit, none)}
	})
	step := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
		bit, found := parameters(g)
		next := graph.BitwiseOr(found, graph.BroadcastToShape(bit, found.Shape()))
		above := graph.GreaterOrEqual(keys, graph.BroadcastToShape(next, keys.Shape()))
		enough := graph.GreaterOrEqual(graph.ReduceAndKeep(graph.Where(above, weights, zeros), graph.ReduceSum, -1), sum)
		return []*graph.Node{graph.BitwiseShiftRightLogical(bit, one), graph.Where(enough, next, found)}
	})
	return graph.While(hasMoreBits, step, graph.Const(g, uint32(1<<31)), start)[1]
}
