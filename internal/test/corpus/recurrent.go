package corpus

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/lstm"
	"github.com/gomlx/gomlx/ml/layers/norm"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// recurrent returns a language model of LSTM layers. GoMLX unrolls the time steps.
func recurrent(c text, hidden int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Splits: func(p int) logical.Rules {
			return logical.Rules{columns(p, `/tokens/embeddings`), columns(p, `/vocabulary/dense/weights`)}
		},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := layers.Embedding(rc.Scope("tokens"), in[0], c.dtype, c.vocabulary, c.width)
			for i := range c.layers {
				all, _, _ := lstm.New(rc.Scope(fmt.Sprintf("lstm%d", i)), x, hidden).Done()
				x = graph.TransposeAllAxes(graph.Squeeze(all, 1), 1, 0, 2)
			}
			return tokenLoss(in[1], layers.Dense(rc.Scope("vocabulary"), x, true, c.vocabulary))
		},
	}
}

// tagged returns a bidirectional LSTM with peepholes that labels sequences.
func tagged(c text, hidden, tags int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(tags, c.rows)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := layers.Embedding(rc.Scope("tokens"), in[0], c.dtype, c.vocabulary, c.width)
			_, last, _ := lstm.New(rc.Scope("lstm"), x, hidden).Direction(lstm.DirBidirectional).UsePeephole(true).Done()
			last = graph.Reshape(graph.TransposeAllAxes(last, 1, 0, 2), -1, 2*hidden)
			return tokenLoss(in[1], layers.Dense(rc.Scope("tags"), last, true, tags))
		},
	}
}

// translating returns an LSTM encoder and an LSTM decoder with attention. The decoder starts from
// the final state of the encoder.
func translating(c text, hidden int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows,
			c.length)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := layers.Embedding(rc.Scope("source"), in[0], c.dtype, c.vocabulary, c.width)
			y := layers.Embedding(rc.Scope("target"), in[1], c.dtype, c.vocabulary, c.width)
			read, h, cell := lstm.New(rc.Scope("encoder"), x, hidden).Done()
			written, _, _ := lstm.New(rc.Scope("decoder"), y, hidden).InitialStates(h, cell).Done()
			keys := graph.TransposeAllAxes(graph.Squeeze(read, 1), 1, 0, 2)
			queries := graph.TransposeAllAxes(graph.Squeeze(written, 1), 1, 0, 2)
			scores := graph.Softmax(graph.Einsum("bqh,bkh->bqk", queries, keys), -1)
			context := graph.Einsum("bqk,bkh->bqh", scores, keys)
			out := graph.Concatenate([]*Node{queries, context}, -1)
			return tokenLoss(in[2], layers.Dense(rc.Scope("vocabulary"), out, true, c.vocabulary))
		},
	}
}

// dilated returns a WaveNet: gated convolutions over time whose dilation doubles at each level.
func dilated(rows, length, channels, depth, levels int) Program {
	return Program{
		Inputs: []Input{ints(levels, rows, length), ints(levels, rows, length)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := layers.Embedding(rc.Scope("samples"), in[0], dtypes.Float32, levels, channels)
			skip := graph.ZerosLike(x)
			for i := range depth {
				back := 1 << i
				// Pad on the left, so that the convolution is causal.
				padded := graph.GrowLeft(x, 1, back, 0)
				gate := layers.Convolution(rc.Scope(fmt.Sprintf("gate%d", i)),
					padded).Channels(channels).KernelSize(2).Dilations(back).NoPadding().Done()
				filter := layers.Convolution(rc.Scope(fmt.Sprintf("filter%d", i)),
					padded).Channels(channels).KernelSize(2).Dilations(back).NoPadding().Done()
				h := layers.Dense(rc.Scope(fmt.Sprintf("out%d", i)), graph.Mul(graph.Tanh(filter), graph.Sigmoid(gate)), true,
					channels)
				skip, x = graph.Add(skip, h), graph.Add(x, h)
			}
			return tokenLoss(in[1], layers.Dense(rc.Scope("levels"), activation.Relu(skip), true, levels))
		},
	}
}

// looped returns a recurrent network that runs as a loop on the device. GoMLX cannot differentiate
// this loop.
func looped(rows, length, width int) Program {
	return Program{
		Inputs: []Input{floats(rows, length, width)},
		Splits: func(p int) logical.Rules { return logical.Rules{columns(p, `/cell/weights`)} },
		Forward: func(rc *strategy.ReplicaContext, in []*Node) []*Node {
			g, local := rc.Graph(), in[0].Shape().Dim(0)
			weights := rc.Scope("cell").VariableWithShape("weights", shapes.Make(dtypes.Float32, width, width)).NodeValue(g)
			// Create the scalar outside the closures, because GoMLX creates equal scalars only once.
			zero := graph.Scalar(g, dtypes.Int32, 0)
			step, state, sum := shapes.Make(dtypes.Int32), shapes.Make(dtypes.Float32, local, width), shapes.Make(dtypes.Float32,
				local)
			input, matrix := in[0].Shape(), weights.Shape()
			cond := graph.NewClosure(g, func(g *graph.Graph) []*Node {
				i := graph.Parameter(g, "i", step)
				for j, s := range []shapes.Shape{state, sum, input, matrix} {
					graph.Parameter(g, fmt.Sprintf("unused%d", j), s)
				}
				return []*Node{graph.LessThan(i, graph.Scalar(g, dtypes.Int32, length))}
			})
			body := graph.NewClosure(g, func(g *graph.Graph) []*Node {
				i, h, total := graph.Parameter(g, "i", step), graph.Parameter(g, "state", state), graph.Parameter(g, "sum", sum)
				all, w := graph.Parameter(g, "all", input), graph.Parameter(g, "weights", matrix)
				x := graph.Squeeze(graph.DynamicSlice(all, []*Node{zero, i, zero}, []int{local, 1, width}), 1)
				h = graph.Tanh(graph.Add(x, graph.Dot(h, w).Product()))
				return []*Node{graph.AddScalar(i, 1), h, graph.Add(total, graph.ReduceSum(h, -1)), all, w}
			})
			out := graph.While(cond, body, zero, graph.Zeros(g, state), graph.Zeros(g, sum), in[0], weights)
			return []*Node{out[1], graph.ReduceAllMean(out[2])}
		},
	}
}

// spectral returns an FNet, which mixes tokens with a Fourier transform.
func spectral(rows, length, width, depth int) Program {
	return Program{
		Inputs: []Input{floats(rows, length, width), floats(rows, 1)},
		Splits: blockRules,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := in[0]
			for i := range depth {
				name := fmt.Sprintf("layer%d", i)
				spectrum := graph.FFT(graph.ConvertDType(graph.Transpose(x, 1, 2), dtypes.Complex64))
				x = norm.LayerNorm(rc.Scope(name), graph.Add(x, graph.Transpose(graph.Real(spectrum), 1, 2)), -1).Done()
				h := activation.Gelu(layers.Dense(rc.Scope(name, "up"), x, true, 4*width))
				x = graph.Add(x, layers.Dense(rc.Scope(name, "down"), h, true, width))
			}
			return graph.ReduceAllMean(graph.Square(graph.Sub(in[1], layers.Dense(rc.Scope("out"), graph.ReduceMean(x, 1), true,
				1))))
		},
	}
}
