package splitforms

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// builder builds one program.
type builder struct {
	Environment
	r         *rand.Rand
	parts     int
	arguments []*graph.Node
}

func (b *builder) parameter(dims ...int) *graph.Node {
	x := b.Parameter(dims...)
	b.arguments = append(b.arguments, x)
	return x
}

// operation appends an operation to a program. build returns the result and a description of the
// settings. It returns nil if the operation does not support x. A constant operation has no
// gradient.
type operation struct {
	name     string
	constant bool
	build    func(b *builder, x *graph.Node) (*graph.Node, string)
}

// layers are the operations of image networks. Convolutions are more frequent than pooling
// operations.
var layers = []operation{
	{"convolution", false, convolution}, {"convolution", false, convolution}, {"convolution", false, convolution},
	{"pool", false, pool},
}

var operations = append(slices.Clone(layers), []operation{
	{"general convolution", true, generalConvolution},
	{"window", true, window}, {"window", true, window},
	{"pad", false, pad}, {"crop", true, crop}, {"reverse", false, reverse}, {"slice", false, slice},
	{"concatenate", false, concatenate},
	{"dynamic slice", false, dynamicSlice}, {"dynamic update", false, dynamicUpdate}, {"gather", false, gather},
	{"cumulative sum", false, cumulativeSum}, {"sort", true, sorted}, {"top k", true, topK}, {"argmax", true, argMax},
	{"shift", false, shift}, {"Fourier transform", true, fourier}, {"real Fourier transform", false, realFourier},
	{"transpose", false, transpose}, {"merge", false, merge}, {"mean", false, mean},
}...)

// spatial calls value for each spatial dimension of x and returns the results.
func (b *builder) spatial(x *graph.Node, value func(axis int) int) []int {
	out := make([]int, x.Rank()-2)
	for i := range out {
		out[i] = value(i + 1)
	}
	return out
}

func convolution(b *builder, x *graph.Node) (*graph.Node, string) {
	if x.Rank() < 3 || x.Rank() > 4 {
		return nil, ""
	}
	r := b.r
	dilations := b.spatial(x, func(int) int { return 1 + r.IntN(6)/4 })
	sizes := b.spatial(x, func(axis int) int { return 1 + r.IntN(min(5, x.Shape().Dim(axis))) })
	strides := b.spatial(x, func(int) int { return 1 + r.IntN(6)/2 })
	paddings := make([][2]int, len(sizes))
	for i := range paddings {
		if extent := (sizes[i]-1)*dilations[i] + 1; r.IntN(2) == 0 {
			paddings[i] = [2]int{(extent - 1) / 2, extent / 2}
		} else {
			paddings[i] = [2]int{r.IntN(extent), r.IntN(extent)}
		}
		if slices.Max(dilations) > 1 {
			strides[i] = 1 // GoMLX does not support both
		}
		if (sizes[i]-1)*dilations[i]+1 > x.Shape().Dim(i+1)+paddings[i][0]+paddings[i][1] {
			return nil, ""
		}
	}
	in, groups := x.Shape().Dim(-1), 1
	if r.IntN(4) == 0 {
		groups = in
	}
	out := groups * (1 + r.IntN(3))
	kernel := b.parameter(append(slices.Clone(sizes), in/groups, out)...)
	if axis := r.IntN(kernel.Rank()); r.IntN(6) == 0 && kernel.Shape().Dim(axis)%b.parts == 0 {
		split := slices.Repeat([]int{1}, kernel.Rank())
		split[axis] = b.parts
		kernel = b.Split(kernel, split...)
	}
	y := graph.Convolve(x, kernel).StridePerAxis(strides...).DilationPerAxis(dilations...)
	return y.ChannelGroupCount(groups).PaddingPerDim(paddings).Done(),
		fmt.Sprintf("kernel %v stride %v dilation %v padding %v groups %d",
			kernel.Shape().Dimensions, strides, dilations, paddings, groups)
}

// generalConvolution is a convolution with input dilation, batch groups and permuted dimensions.
func generalConvolution(b *builder, x *graph.Node) (*graph.Node, string) {
	if x.Rank() < 3 || x.Rank() > 4 {
		return nil, ""
	}
	r := b.r
	order := r.Perm(x.Rank())
	dim := func(i int) int { return x.Shape().Dim(order[i]) }
	n := x.Rank() - 2
	axes := graph.ConvolveAxesConfig{InputBatch: order[n], InputChannels: order[n+1], InputSpatial: order[:n],
		KernelInputChannels: n, KernelOutputChannels: n + 1, KernelSpatial: []int{0, 1}[:n],
		OutputBatch: 0, OutputChannels: n + 1, OutputSpatial: []int{1, 2}[:n]}
	var kernel, strides, inputDilations, kernelDilations []int
	var paddings [][2]int
	for i := range n {
		input, dilated := 1+r.IntN(3), 1+r.IntN(2)
		size := 1 + r.IntN(min(dim(i), 9))
		extent := (size-1)*dilated + 1
		padding := [2]int{r.IntN(extent) - r.IntN(2), r.IntN(extent) - r.IntN(2)}
		if (dim(i)-1)*input+1+padding[0]+padding[1] < extent {
			return nil, ""
		}
		kernel, strides = append(kernel, size), append(strides, 1+r.IntN(3))
		inputDilations, kernelDilations = append(inputDilations, input), append(kernelDilations, dilated)
		paddings = append(paddings, padding)
	}
	channelGroups, batchGroups := 1, 1
	switch r.IntN(4) {
	case 0:
		channelGroups = dim(n + 1)
	case 1:
		batchGroups = dim(n)
	}
	kernel = append(kernel, dim(n+1)/channelGroups, channelGroups*batchGroups*(1+r.IntN(2)))
	k := b.parameter(kernel...)
	y := graph.ConvGeneral(x, k, axes, strides, paddings, inputDilations, kernelDilations, channelGroups, batchGroups)
	return y, fmt.Sprintf("dimensions %v kernel %v strides %v paddings %v dilations %v %v groups %d %d",
		order, kernel, strides, paddings, inputDilations, kernelDilations, channelGroups, batchGroups)
}

func pool(b *builder, x *graph.Node) (*graph.Node, string) {
	if x.Rank() < 3 {
		return nil, ""
	}
	r, kind := b.r, b.r.IntN(4)
	sizes := b.spatial(x, func(axis int) int { return 1 + r.IntN(min(4, x.Shape().Dim(axis))) })
	strides := b.spatial(x, func(int) int { return 1 + r.IntN(3) })
	paddings := make([][2]int, len(sizes))
	for i := range paddings {
		paddings[i] = [2]int{r.IntN(sizes[i]), r.IntN(sizes[i])}
	}
	pools := []func(*graph.Node) *graph.PoolBuilder{graph.MaxPool, graph.MinPool, graph.SumPool, graph.MeanPool}
	p := pools[kind](x).WindowPerAxis(sizes...).StridePerAxis(strides...)
	if r.IntN(3) > 0 {
		p = p.PaddingPerDim(paddings)
	} else {
		p, paddings = p.NoPadding(), nil
	}
	name := []string{"max", "min", "sum", "mean"}[kind]
	return p.Done(), fmt.Sprintf("%s window %v stride %v padding %v", name, sizes, strides, paddings)
}

func window(b *builder, x *graph.Node) (*graph.Node, string) {
	r := b.r
	kinds := []graph.ReduceOpType{compute.ReduceOpSum, compute.ReduceOpMax, compute.ReduceOpMin}
	kind := kinds[r.IntN(len(kinds))]
	n := x.Rank()
	sizes, strides, paddings := make([]int, n), make([]int, n), make([][2]int, n)
	inputDilations, windowDilations := make([]int, n), make([]int, n)
	for i := range n {
		sizes[i], strides[i], inputDilations[i], windowDilations[i] = 1, 1, 1, 1
		if r.IntN(2) == 0 {
			continue
		}
		sizes[i], strides[i] = 1+r.IntN(min(4, x.Shape().Dim(i))), 1+r.IntN(3)
		inputDilations[i], windowDilations[i] = 1+r.IntN(3), 1+r.IntN(2)
		extent := (sizes[i]-1)*windowDilations[i] + 1
		paddings[i] = [2]int{r.IntN(extent), r.IntN(extent)}
		if (x.Shape().Dim(i)-1)*inputDilations[i]+1+paddings[i][0]+paddings[i][1] < extent {
			return nil, ""
		}
	}
	y := graph.BackendReduceWindow(x, kind, sizes, strides, inputDilations, windowDilations, paddings)
	// The maximum or minimum of a window that contains only padding is infinite.
	return graph.Clip(y, graph.Const(x.Graph(), float32(-99)), graph.Const(x.Graph(), float32(99))), fmt.Sprintf(
		"%v sizes %v strides %v dilations %v %v paddings %v", kind, sizes, strides, inputDilations, windowDilations, paddings)
}

func pad(b *builder, x *graph.Node) (*graph.Node, string) { return b.padded(x, 0) }

// crop pads with amounts that may be negative. GoMLX has no gradient for negative padding.
func crop(b *builder, x *graph.Node) (*graph.Node, string) { return b.padded(x, -2) }

func (b *builder) padded(x *graph.Node, least int) (*graph.Node, string) {
	axes := make([]compute.PadAxis, x.Rank())
	for i := range axes {
		if b.r.IntN(2) == 0 {
			axes[i] = compute.PadAxis{Start: least + b.r.IntN(4), End: least + b.r.IntN(4), Interior: b.r.IntN(3)}
		}
		if (x.Shape().Dim(i)-1)*(1+axes[i].Interior)+1+axes[i].Start+axes[i].End < 1 {
			return nil, ""
		}
	}
	return graph.Pad(x, graph.Const(x.Graph(), float32(3)), axes...), fmt.Sprint(axes)
}

func reverse(b *builder, x *graph.Node) (*graph.Node, string) {
	axes := b.r.Perm(x.Rank())[:1+b.r.IntN(2)]
	return graph.Reverse(x, axes...), fmt.Sprint(axes)
}

func slice(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	dim := x.Shape().Dim(axis)
	if dim < 3 {
		return nil, ""
	}
	start, stride := b.r.IntN(dim-1), 1+b.r.IntN(3)
	end := start + 1 + b.r.IntN(dim-start)
	return graph.SliceAxis(x, axis, graph.AxisRange(start, end).Stride(stride)), fmt.Sprintf("axis %d [%d:%d:%d]", axis,
		start, end, stride)
}

func concatenate(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	part := graph.SliceAxis(x, axis, graph.AxisRange(0, 1+b.r.IntN(x.Shape().Dim(axis))))
	return graph.Concatenate([]*graph.Node{part, graph.Neg(x), x}, axis), fmt.Sprintf("axis %d", axis)
}

// position returns an index that depends on the elements of x, so that it is not a constant for the
// compiler.
func (b *builder) position(x *graph.Node, most int) *graph.Node {
	at := graph.ConvertDType(graph.ReduceAllMax(graph.StopGradient(x)), dtypes.Int32)
	return graph.AddScalar(graph.ModScalar(at, 3), float64(b.r.IntN(most+1)))
}

func dynamicSlice(b *builder, x *graph.Node) (*graph.Node, string) {
	at, sizes := make([]*graph.Node, x.Rank()), make([]int, x.Rank())
	for i := range at {
		sizes[i] = 1 + b.r.IntN(x.Shape().Dim(i))
		at[i] = b.position(x, x.Shape().Dim(i)-sizes[i])
	}
	return graph.DynamicSlice(x, at, sizes), fmt.Sprint(sizes)
}

func dynamicUpdate(b *builder, x *graph.Node) (*graph.Node, string) {
	at, sizes := make([]*graph.Node, x.Rank()), make([]int, x.Rank())
	for i := range at {
		sizes[i] = 1 + b.r.IntN(x.Shape().Dim(i))
		at[i] = b.position(x, x.Shape().Dim(i)-sizes[i])
	}
	return graph.DynamicUpdateSlice(x, b.parameter(sizes...), at), fmt.Sprint(sizes)
}

func gather(b *builder, x *graph.Node) (*graph.Node, string) {
	rows := make([][]int32, 1+b.r.IntN(5))
	for i := range rows {
		rows[i] = []int32{int32(b.r.IntN(x.Shape().Dim(0)))}
	}
	return graph.Gather(x, graph.Const(x.Graph(), rows)), fmt.Sprint(rows)
}

func cumulativeSum(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	options := &graph.CumSumOptions{Exclusive: b.r.IntN(2) == 0, Reverse: b.r.IntN(2) == 0}
	return graph.CumSum(x, axis, options), fmt.Sprintf("axis %d %+v", axis, *options)
}

func sorted(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	return graph.Sort(x, axis, b.r.IntN(2) == 0), fmt.Sprintf("axis %d", axis)
}

func topK(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	k := 1 + b.r.IntN(x.Shape().Dim(axis))
	values, positions := graph.TopK(x, k, axis)
	y := graph.Add(values, graph.MulScalar(graph.ConvertDType(positions, dtypes.Float32), 8))
	return y, fmt.Sprintf("%d of axis %d", k, axis)
}

func argMax(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	return graph.ConvertDType(graph.ArgMax(x, axis), dtypes.Float32), fmt.Sprintf("axis %d", axis)
}

func shift(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	if x.Shape().Dim(axis) < 2 {
		return nil, ""
	}
	n := 1 + b.r.IntN(x.Shape().Dim(axis)-1)
	direction := []graph.ShiftDirection{graph.ShiftDirLeft, graph.ShiftDirRight}[b.r.IntN(2)]
	return graph.ShiftWithScalar(x, axis, direction, n, 2), fmt.Sprintf("axis %d by %d, %v", axis, n, direction)
}

// fourier applies a forward or inverse Fourier transform over one to three axes.
func fourier(b *builder, x *graph.Node) (*graph.Node, string) {
	axes := 1 + b.r.IntN(min(3, x.Rank()))
	lengths := x.Shape().Dimensions[x.Rank()-axes:]
	c := graph.ConvertDType(x, dtypes.Complex64)
	name := "forward"
	if b.r.IntN(2) == 0 {
		c, name = graph.InverseFFT(c, lengths...), "inverse"
	} else {
		c = graph.FFT(c, lengths...)
	}
	return graph.Concatenate([]*graph.Node{graph.Real(c), graph.Imag(c)}, b.r.IntN(x.Rank())), fmt.Sprintf("%s %v", name,
		lengths)
}

// realFourier applies a real Fourier transform over the last axis. For even lengths it may
// square the spectrum and apply the inverse transform.
func realFourier(b *builder, x *graph.Node) (*graph.Node, string) {
	if b.r.IntN(2) == 0 {
		x = graph.Transpose(x, 1, -1)
	}
	c := graph.RealFFT(x)
	if n := x.Shape().Dim(-1); n%2 == 0 && b.r.IntN(2) == 0 {
		return graph.InverseRealFFT(graph.Mul(c, c)), "there and back"
	}
	return graph.Add(graph.Real(c), graph.Imag(c)), ""
}

func transpose(b *builder, x *graph.Node) (*graph.Node, string) {
	order := b.r.Perm(x.Rank())
	return graph.TransposeAllAxes(x, order...), fmt.Sprint(order)
}

// merge merges two adjacent dimensions.
func merge(b *builder, x *graph.Node) (*graph.Node, string) {
	if x.Rank() < 4 {
		return nil, ""
	}
	axis := b.r.IntN(x.Rank() - 1)
	dims := slices.Clone(x.Shape().Dimensions)
	dims[axis] *= dims[axis+1]
	return graph.Reshape(x, slices.Delete(dims, axis+1, axis+2)...), fmt.Sprintf("axis %d", axis)
}

func mean(b *builder, x *graph.Node) (*graph.Node, string) {
	axis := b.r.IntN(x.Rank())
	return graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, axis)), fmt.Sprintf("axis %d", axis)
}
