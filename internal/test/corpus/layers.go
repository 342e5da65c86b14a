package corpus

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/attention/pos"
	"github.com/gomlx/gomlx/ml/layers/fnn"
	"github.com/gomlx/gomlx/ml/layers/kan"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/layers/rational"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/layers/vnn"
	"github.com/gomlx/gomlx/ml/nn"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// layer returns a program that trains one layer on rows of a fixed width with a mean squared error.
func layer(rowCount, width int, splits func(p int) logical.Rules, of func(rc *strategy.ReplicaContext,
	x *Node) *Node) Program {
	return Program{Inputs: []Input{floats(rowCount, width), floats(rowCount, 1)}, Splits: splits,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			y := of(rc, in[0])
			y = graph.Reshape(y, y.Shape().Dim(0), -1)
			return graph.ReduceAllMean(graph.Square(graph.Sub(graph.ReduceMean(y, -1), graph.Squeeze(in[1], -1))))
		}}
}

// forward returns GoMLX's feed-forward network with residuals, normalization and regularizers.
func forward(rowCount, width, depth int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		return fnn.New(rc.Scope("fnn"), x, 8).NumHiddenLayers(depth, width).Activation(activation.TypeSilu).Residual(true).
			Normalization("layer").Regularizer(regularizer.Combine(regularizer.L2(1e-4), regularizer.L1(1e-5))).Done()
	})
}

// ensemble returns a feed-forward network with independent ensemble members.
func ensemble(rowCount, width, members int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		return fnn.New(rc.Scope("fnn"), x, 8).WithEnsembleSize(members).NumHiddenLayers(1,
			width).Activation(activation.TypeSwiGLU).Done()
	})
}

// dropped returns a network with every kind of dropout.
func dropped(rowCount, width int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		g := x.Graph()
		x = layers.DropoutStatic(rc.Scope("a"), layers.Dense(rc.Scope("a"), x, true, width), 0.1)
		x = graph.Add(x, layers.DropPath(rc.Scope("b"), layers.Dense(rc.Scope("b"), x, true, width),
			graph.Scalar(g, dtypes.Float32, 0.2)))
		x = layers.DropoutNormalize(rc.Scope("c"), x, graph.Scalar(g, dtypes.Float32, 0.3), false)
		picture := graph.Reshape(x, x.Shape().Dim(0), 8, 8, -1)
		return layers.DropBlock(rc.Scope("d"), picture).WithDropoutProbability(0.1).WithBlockSize(3).Done()
	})
}

// normalised returns a network with each stateless normalization.
func normalised(rowCount, width int) Program {
	return layer(rowCount, width, func(p int) logical.Rules { return logical.Rules{columns(p, `/wide/dense/weights`)} },
		func(rc *strategy.ReplicaContext, x *Node) *Node {
			x = layers.Dense(rc.Scope("wide"), x, true, width)
			x = norm.LayerNorm(rc.Scope("layer"), x, -1).LearnedGain(true).LearnedOffset(true).Done()
			x = norm.RMSNorm(rc.Scope("rms"), x).WithScaleOffset(1).Done()
			x = norm.DynamicTanh(rc.Scope("tanh"), x).WithAlpha(0.5).Done()
			x = graph.L2NormalizeWithEpsilon(x, 1e-6, -1)
			return layers.Dense(rc.Scope("out"), x, false, 8)
		})
}

// batchNormalised returns a network with batch normalization over features and over images.
func batchNormalised(rowCount, width int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = norm.BatchNorm(rc.Scope("features"), layers.Dense(rc.Scope("in"), x, true, width), -1).Momentum(0.9).Done()
		x = norm.BatchNorm(rc.Scope("channels"), graph.Reshape(x, x.Shape().Dim(0), 4, 4, -1), -1).Center(false).Done()
		return layers.Dense(rc.Scope("out"), graph.Reshape(x, x.Shape().Dim(0), -1), false, 8)
	})
}

// activated returns a network with every activation function.
func activated(rowCount, width int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = layers.Dense(rc.Scope("in"), x, true, width)
		sum := x
		for _, kind := range activation.TypeValues() {
			if kind.HiddenDimMultiplier() != 1 { // gated activations halve their input
				sum = graph.Add(sum, activation.Apply(kind, graph.Concatenate([]*Node{x, sum}, -1)))
				continue
			}
			sum = graph.Add(sum, activation.Apply(kind, graph.Mul(x, sum)))
			sum = graph.L2NormalizeWithEpsilon(sum, 1e-3, -1)
		}
		return graph.Add(sum, graph.Add(activation.HardSigmoid(x), activation.GeluApproximate(x)))
	})
}

// attended returns a network with several kinds of attention in sequence.
func attended(rowCount, length, width, heads int) Program {
	return Program{Inputs: []Input{floats(rowCount, length, width), ints(length, rowCount)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x, head := in[0], width/heads
			g := rc.Graph()
			seen := graph.LessThan(graph.Iota(g, graph.ReduceMean(x, -1).Shape(), 1),
				graph.InsertAxes(graph.ConvertDType(in[1], dtypes.Float32), -1))
			x = attention.SelfAttention(rc.Scope("rope"), x, heads,
				head).WithPositionalEncoder(pos.NewRoPE(10000)).WithCausalMask(true).Done()
			x = attention.SelfAttention(rc.Scope("grouped"), x, heads, head).WithNumKVHeads(heads / 2).WithQKRMSNorm(1e-6).Done()
			x = attention.SelfAttention(rc.Scope("window"), x, heads,
				head).WithSlidingWindow(length / 4).WithCausalMask(true).WithScoreSoftCap(30).Done()
			x = attention.SelfAttention(rc.Scope("joined"), x, heads, head).UseQKVProjection().Done()
			x = pos.NewLearned(rc.Scope("learned"), length, width).PreEncode(x, pos.SequentialPositions(g,
				graph.Scalar(g, dtypes.Int32, 0), length), 1)
			x = attention.MultiHeadAttention(rc.Scope("masked"), x, x, x, heads,
				head).WithKeyMask(seen).WithQueryMask(seen).WithOutputDim(width).Done()
			return graph.ReduceAllMean(graph.Square(x))
		}}
}

// calibrated returns a lattice of piecewise-linear calibrations. Each step restores their
// monotonicity.
func calibrated(rowCount, width, keys int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		points := make([]float32, keys)
		for i := range points {
			points[i] = float32(i) / float32(keys)
		}
		points0 := graph.Const(x.Graph(), points)
		x = layers.Dense(rc.Scope("in"), x, true, 4)
		var parts []*Node
		for i, column := range graph.Split(x, 1, 4) {
			name := []string{"a", "b", "c", "d"}[i]
			if i%2 == 0 {
				parts = append(parts, layers.PieceWiseLinearCalibration(rc.Scope(name), column, points0, true))
			} else {
				parts = append(parts, layers.PieceWiseLinearCalibrationCascaded(rc.Scope(name), column, points0, true))
			}
		}
		return graph.Concatenate(parts, -1)
	})
}

// splines returns a Kolmogorov-Arnold network of the given kind.
func splines(rowCount, width, hidden int, kind func(c *kan.Config) *kan.Config) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		return kind(kan.New(rc.Scope("kan"), x, 8).NumHiddenLayers(1, hidden).NumControlPoints(8)).Done()
	})
}

// rationals returns a network with learnable rational functions of each feature.
func rationals(rowCount, width int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = rational.New(rc.Scope("swish"), layers.Dense(rc.Scope("in"), x, true,
			width)).Approximate("swish").WithInputGroups(8).Done()
		return layers.Dense(rc.Scope("out"), rational.New(rc.Scope("own"), x).WithDegrees(5, 4).Done(), true, 8)
	})
}

// rotated returns a network of vector neurons, which are rotation-equivariant.
func rotated(rowCount, width int) Program {
	return layer(rowCount, 3*width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = graph.Reshape(x, x.Shape().Dim(0), width, 3)
		a := vnn.New(rc.Scope("a"), x, 8).NumHiddenLayers(2,
			width).Residual(true).Normalization("layer").Activation("relu").Done()
		b := vnn.New(rc.Scope("b"), x, 8).Done()
		return vnn.InvariantDotProduct(a, b)
	})
}

// lost returns a dense layer with the sum of GoMLX's losses.
func lost(rowCount, width, classes int) Program {
	return Program{Inputs: []Input{floats(rowCount, width), floats(rowCount, classes), ints(classes, rowCount, 1)},
		Optimizer: func() optimizer.Interface { return optimizer.Adam().Adamax().LearningRate(1e-3).Done() },
		Splits:    func(p int) logical.Rules { return logical.Rules{columns(p, `/out/dense/weights`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			y := layers.Dense(rc.Scope("out"), in[0], true, classes)
			target := graph.Sigmoid(in[1])
			chances := graph.Sigmoid(y)
			sum := tokenLoss(graph.Squeeze(in[2], -1), y)
			for _, f := range []loss.LossFn{loss.MeanSquaredError, loss.MeanAbsoluteError, loss.MakeHuberLoss(0.5),
				loss.MakeAdaptivePowerLoss(2, 1, 1, 2), loss.EuclideanDistance} {
				sum = graph.Add(sum, graph.ReduceAllMean(f([]*Node{target}, []*Node{y})))
			}
			sum = graph.Add(sum, graph.ReduceAllMean(loss.BinaryCrossentropyLogits([]*Node{target}, []*Node{y})))
			sum = graph.Add(sum, graph.ReduceAllMean(loss.BinaryCrossentropy([]*Node{target}, []*Node{chances})))
			sum = graph.Add(sum, graph.ReduceAllMean(loss.CategoricalCrossEntropyLogits([]*Node{graph.Softmax(target)},
				[]*Node{y})))
			return graph.Add(sum, graph.ReduceAllMean(nn.SoftCap(y, 20)))
		}}
}

// regions returns a network whose halves run on different logical devices.
func regions(rowCount, width int) Program {
	return layer(rowCount, width, nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		part := func(name string, x *Node) *Node {
			x = activation.Relu(layers.Dense(rc.Scope(name, "up"), x, true, width))
			return layers.Dense(rc.Scope(name, "down"), x, true, width)
		}
		last := rc.Strategy().NumLogicalDevices() - 1
		x = logical.OnDevice(0, x, func(x *Node) *Node { return part("first", x) })
		return logical.OnDevice(last, x, func(x *Node) *Node { return part("second", x) })
	})
}
