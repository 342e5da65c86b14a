package generate

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Sampling says how tokens are chosen. The zero value of all but MaxTokens always takes the most
// likely token.
type Sampling struct {
	// MaxTokens is how many tokens are made for each prompt at most. The prompt and they have to fit
	// in Options.Length.
	MaxTokens int
	// Temperature divides the logits: below 1 likely tokens become more likely. 0 takes the most
	// likely token, and draws no random numbers.
	Temperature float64
	// TopK draws among the k most likely tokens alone; 0 among all. Tokens as likely as the last of
	// them are kept, too.
	TopK int
	// TopP draws among the most likely tokens whose probabilities add up to p, of those of TopK; 0
	// and 1 among all. The token with which the sum reaches p is kept.
	TopP float64
	// Seed is that of the random numbers. They depend on the seed, on the number of the prompt in
	// the call and on the token's place, and on nothing else: each mesh and batch draws the same.
	Seed uint64
	// Stop are the tokens that end a row. Outputs do not have them.
	Stop []int32
	// Stream, if it is set, is called after each launch with the new tokens of each prompt that has
	// some, in the order of the prompts. Its error ends the call.
	Stream func(prompt int, tokens []int32) error
}

// check refuses what cannot be sampled with.
func (s *Sampling) check(o *Options) error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fault("Sampling.Temperature", "use 0 for the most likely token, and more for a random one", "it is %v", s.Temperature)
	case s.TopK < 0 || s.TopK > o.Vocabulary:
		return fault("Sampling.TopK", "use 0 for all tokens", "it is %d, and the vocabulary has %d tokens", s.TopK, o.Vocabulary)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fault("Sampling.TopP", "use a probability, or 0 for all tokens", "it is %v", s.TopP)
	case s.Temperature == 0 && (s.TopK > 0 || s.TopP > 0):
		return fault("Sampling.Temperature", "set it, to 1 for the model's own probabilities", "it is 0, which takes the most likely token, and TopK or TopP is set")
	}
	for _, token := range s.Stop {
		if o.unknown(token) {
			return fault("Sampling.Stop", "use the model's tokens", "token %d, and the vocabulary has %d", token, o.Vocabulary)
		}
	}
	return nil
}

// variant is what of a sampling a program is compiled for.
type variant struct{ drawn, topK, topP bool }

func (s *Sampling) variant() variant {
	return variant{s.Temperature > 0, s.TopK > 0, s.TopP > 0 && s.TopP < 1}
}

// pick chooses a token for each row of logits, Float32 [rows, vocabulary], as an int32 tensor
// [rows]; -1 for a row with a NaN. knobs are temperature, top k and top p of each row, seed its two
// numbers and place its place, int32 [rows].
func (v variant) pick(logits, seed, knobs, place *graph.Node) *graph.Node {
	bad := graph.ReduceLogicalOr(graph.NotEqual(logits, logits), -1)
	x := logits
	if v.drawn {
		knob := func(i int) *graph.Node { return graph.Slice(knobs, graph.AxisRange(), graph.AxisElem(i)) } // [rows, 1]
		like := func(column *graph.Node) *graph.Node { return graph.BroadcastToDims(column, x.Shape().Dimensions...) }
		x = graph.Div(graph.Sub(x, like(graph.ReduceAndKeep(x, graph.ReduceMax, -1))), like(knob(0)))
		never := graph.Infinity(x.Graph(), dtypes.Float32, -1)
		least := func(weights, sum *graph.Node) {
			keys := ordered(x)
			x = graph.Where(graph.GreaterOrEqual(keys, like(threshold(keys, weights, sum))), x, graph.BroadcastToDims(never, x.Shape().Dimensions...))
		}
		if v.topK {
			least(graph.OnesLike(x), knob(1))
		}
		if v.topP {
			p := graph.Exp(x)
			least(p, graph.Mul(knob(2), graph.ReduceAndKeep(p, graph.ReduceSum, -1)))
		}
		x = graph.Add(x, gumbel(seed, place, x.Shape().Dim(-1)))
	}
	token := graph.ArgMax(x, -1, dtypes.Int32)
	return graph.Where(bad, graph.BroadcastToShape(graph.Const(x.Graph(), int32(-1)), token.Shape()), token)
}

// ordered maps Float32 to Uint32 of the same order.
func ordered(x *graph.Node) *graph.Node {
	g := x.Graph()
	bits := graph.Bitcast(x, dtypes.Uint32)
	sign := graph.BroadcastToShape(graph.Const(g, uint32(1<<31)), bits.Shape())
	negative := graph.GreaterOrEqual(bits, sign)
	return graph.Where(negative, graph.BitwiseNot(bits), graph.BitwiseOr(bits, sign))
}

// threshold returns for each row the greatest number for which the weights of the keys that are not
// less add up to sum at least: [rows, 1], of keys and weights [rows, n]. It finds the number bit by
// bit, without sorting.
func threshold(keys, weights, sum *graph.Node) *graph.Node {
	g := keys.Graph()
	zeros, none := graph.ZerosLike(weights), graph.Const(g, uint32(0))
	one := graph.Const(g, uint32(1))
	start := graph.Zeros(g, shapes.Make(dtypes.Uint32, keys.Shape().Dim(0), 1))
	parameters := func(g *graph.Graph) (bit, found *graph.Node) {
		return graph.Parameter(g, "bit", one.Shape()), graph.Parameter(g, "found", start.Shape())
	}
	more := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
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
	return graph.While(more, step, graph.Const(g, uint32(1<<31)), start)[1]
}
