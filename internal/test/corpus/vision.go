package corpus

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// pictures contains the sizes of a batch of square RGB images and the number of classes.
type pictures struct{ rows, side, classes int }

func (c pictures) inputs() []Input {
	return []Input{floats(c.rows, c.side, c.side, 3), ints(c.classes, c.rows, 1)}
}

// classified returns a program that classifies images.
func (c pictures) classified(splits func(p int) logical.Rules, logits func(rc *strategy.ReplicaContext,
	x *Node) *Node) Program {
	return Program{Inputs: c.inputs(), Splits: splits, Optimizer: momentum, Loss: func(rc *strategy.ReplicaContext,
		in []*Node) *Node {
		return tokenLoss(graph.Squeeze(in[1], -1), logits(rc, in[0]))
	}}
}

func momentum() optimizer.Interface {
	return optimizer.StochasticGradientDescent().WithLearningRate(0.01).Done()
}

// conv applies a convolution, which may be grouped, and a batch normalization.
func conv(rc *strategy.ReplicaContext, name string, x *Node, channels, size, stride, groups int) *Node {
	if groups == 1 {
		x = layers.Convolution(rc.Scope(name), x).Channels(channels).KernelSize(size).PadSame().Strides(stride).UseBias(
			false).Done()
	} else {
		// GoMLX's layer creates the kernel of an ungrouped convolution.
		kernel := shapes.Make(dtypes.Float32, size, size, x.Shape().Dim(-1)/groups, channels)
		weights := rc.Scope(name, "grouped").VariableWithShape("weights", kernel).NodeValue(rc.Graph())
		x = graph.Convolve(x, weights).ChannelGroupCount(groups).PadSame().Strides(stride).Done()
	}
	return norm.BatchNorm(rc.Scope(name), x, -1).Done()
}

// bottleneck applies a residual block of three convolutions.
func bottleneck(rc *strategy.ReplicaContext, name string, x *Node, inner, outer, stride, groups int) *Node {
	y := activation.Relu(conv(rc, name+"a", x, inner, 1, 1, 1))
	y = activation.Relu(conv(rc, name+"b", y, inner, 3, stride, groups))
	y = conv(rc, name+"c", y, outer, 1, 1, 1)
	if stride != 1 || x.Shape().Dim(-1) != outer {
		x = conv(rc, name+"skip", x, outer, 1, stride, 1)
	}
	return activation.Relu(graph.Add(x, y))
}

// residual returns a ResNet, or a ResNeXt if groups is larger than 1. stages contains the number of
// blocks of each stage.
func residual(c pictures, width int, stages []int, groups int) Program {
	return c.classified(func(p int) logical.Rules { return logical.Rules{columns(p, `/classes/dense/weights`)} },
		func(rc *strategy.ReplicaContext, x *Node) *Node {
			x = activation.Relu(conv(rc, "stem", x, width, 7, 2, 1))
			x = graph.MaxPool(x).Window(3).Strides(2).PadSame().Done()
			inner := width
			if groups > 1 {
				inner = 2 * width
			}
			for s, blocks := range stages {
				for b := range blocks {
					stride := 1
					if b == 0 && s > 0 {
						stride = 2
					}
					x = bottleneck(rc, fmt.Sprintf("stage%d_%d", s, b), x, inner<<s, 4*width<<s, stride, groups)
				}
			}
			return layers.Dense(rc.Scope("classes"), graph.ReduceMean(x, 1, 2), true, c.classes)
		})
}

// separable returns a MobileNet with depthwise and pointwise convolutions.
func separable(c pictures, widths []int) Program {
	return c.classified(nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = activation.Relu(conv(rc, "stem", x, widths[0], 3, 2, 1))
		for i, width := range widths {
			channels := x.Shape().Dim(-1)
			stride := 1 + i%2
			x = activation.HardSwish(conv(rc, fmt.Sprintf("depth%d", i), x, channels, 3, stride, channels))
			x = activation.HardSwish(conv(rc, fmt.Sprintf("point%d", i), x, width, 1, 1, 1))
		}
		return layers.Dense(rc.Scope("classes"), graph.ReduceMean(x, 1, 2), true, c.classes)
	})
}

// plain returns a VGG: convolutions with biases, and sharded dense layers.
func plain(c pictures, widths []int, dense int) Program {
	return c.classified(func(p int) logical.Rules {
		return logical.Rules{columns(p, `/wide0/dense/weights`), rows(p, `/wide1/dense/weights`)}
	}, func(rc *strategy.ReplicaContext, x *Node) *Node {
		for i, width := range widths {
			for j := range 2 {
				x = layers.Convolution(rc.Scope(fmt.Sprintf("conv%d_%d", i, j)), x).Channels(width).KernelSize(3).PadSame().Done()
				x = activation.LeakyRelu(x)
			}
			x = graph.MaxPool(x).Window(2).Done()
		}
		x = graph.Reshape(x, x.Shape().Dim(0), -1)
		x = activation.Relu(layers.Dense(rc.Scope("wide0"), x, true, dense))
		x = activation.Relu(layers.Dense(rc.Scope("wide1"), x, true, dense))
		return layers.Dense(rc.Scope("classes"), x, true, c.classes)
	})
}

// unet returns a U-Net for semantic segmentation. It downsamples with pooling, upsamples with
// interpolation, and has skip connections between the levels.
func unet(c pictures, widths []int) Program {
	return Program{
		Inputs: []Input{floats(c.rows, c.side, c.side, 3), ints(c.classes, c.rows, c.side, c.side)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			pair := func(name string, x *Node, width int) *Node {
				for i := range 2 {
					scope := rc.Scope(fmt.Sprintf("%s_%d", name, i))
					x = layers.Convolution(scope, x).Channels(width).KernelSize(3).PadSame().Done()
					x = activation.Swish(norm.LayerNorm(scope, x, -1).Done())
				}
				return x
			}
			x := in[0]
			var levels []*Node
			for i, width := range widths {
				x = pair(fmt.Sprintf("down%d", i), x, width)
				if i < len(widths)-1 {
					levels = append(levels, x)
					x = graph.MeanPool(x).Window(2).Done()
				}
			}
			for i := len(levels) - 1; i >= 0; i-- {
				shape := levels[i].Shape()
				x = graph.Interpolate(x, -1, shape.Dim(1), shape.Dim(2), -1).Bilinear().Done()
				x = pair(fmt.Sprintf("up%d", i), graph.Concatenate([]*Node{x, levels[i]}, -1), widths[i])
			}
			return tokenLoss(in[1], layers.Convolution(rc.Scope("pixels"), x).Channels(c.classes).KernelSize(1).Done())
		},
	}
}

// patches converts images to tokens of the shape [rows, tokens, width].
func patches(rc *strategy.ReplicaContext, x *Node, size, width int) *Node {
	x = layers.Convolution(rc.Scope("patches"), x).Channels(width).KernelSize(size).Strides(size).NoPadding().Done()
	x = graph.Reshape(x, x.Shape().Dim(0), -1, width)
	places := rc.Scope("patches", "places").VariableWithShape("places", shapes.Make(dtypes.Float32, 1, x.Shape().Dim(1),
		width))
	return graph.Add(x, places.NodeValue(rc.Graph()))
}

// vit returns a vision transformer.
func vit(c pictures, patch, width, heads, depth int) Program {
	return c.classified(blockRules, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = patches(rc, x, patch, width)
		for i := range depth {
			x = block(rc, fmt.Sprintf("layer%d", i), x, nil, heads, false)
		}
		return layers.Dense(rc.Scope("classes"), graph.ReduceMean(x, 1), true, c.classes)
	})
}

// mixer returns an MLP-Mixer.
func mixer(c pictures, patch, width, depth int) Program {
	return c.classified(nil, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = patches(rc, x, patch, width)
		pair := func(name string, x *Node) *Node {
			w := x.Shape().Dim(-1)
			h := norm.LayerNorm(rc.Scope(name), x, -1).Done()
			h = activation.GeluApproximate(layers.Dense(rc.Scope(name, "up"), h, true, 2*w))
			return layers.Dense(rc.Scope(name, "down"), h, true, w)
		}
		for i := range depth {
			x = graph.Add(x, graph.Transpose(pair(fmt.Sprintf("tokens%d", i), graph.Transpose(x, 1, 2)), 1, 2))
			x = graph.Add(x, pair(fmt.Sprintf("channels%d", i), x))
		}
		return layers.Dense(rc.Scope("classes"), graph.ReduceMean(x, 1), true, c.classes)
	})
}
