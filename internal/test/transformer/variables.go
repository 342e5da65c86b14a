package transformer

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
)

// variable describes one variable of the model.
type variable struct {
	name string
	dims []int
	// deviation is the standard deviation of the initial values, or the constant ones.
	deviation float64
	// split is the dimension that is sharded over the logical devices, or the constant whole.
	split int
}

const (
	ones  = -1
	whole = -1
)

// first returns the variables before the layers, layer the variables of one layer, and last the
// variables after the layers. The index of a variable in this order is the seed of its initial
// values.
func (c Config) first() []variable {
	all := []variable{{"emb", []int{c.Vocabulary, c.Width}, 0.02, 0}}
	if !c.Llama {
		all = append(all, variable{"pos", []int{c.Sequence, c.Width}, 0.02, whole})
	}
	return all
}

func (c Config) layer() []variable {
	d, h, k, f := c.Width, c.Heads, c.KeyHeads, c.Hidden
	size := d / h
	if c.Llama {
		return []variable{
			{"g1", []int{d}, ones, whole},
			{"wq", []int{d, h, size}, 0.02, 1}, {"wk", []int{d, k, size}, 0.02, 1}, {"wv", []int{d, k, size}, 0.02, 1},
			{"wo", []int{h, size, d}, 0.02, 0},
			{"g2", []int{d}, ones, whole},
			{"w1", []int{d, f}, 0.02, 1}, {"w3", []int{d, f}, 0.02, 1}, {"w2", []int{f, d}, 0.02, 0},
		}
	}
	return []variable{
		{"g1", []int{d}, ones, whole}, {"c1", []int{d}, 0, whole},
		{"wq", []int{d, h, size}, 0.02, 1}, {"bq", []int{h, size}, 0, 0},
		{"wk", []int{d, h, size}, 0.02, 1}, {"bk", []int{h, size}, 0, 0},
		{"wv", []int{d, h, size}, 0.02, 1}, {"bv", []int{h, size}, 0, 0},
		{"wo", []int{h, size, d}, 0.02, 0}, {"bo", []int{d}, 0, whole},
		{"g2", []int{d}, ones, whole}, {"c2", []int{d}, 0, whole},
		{"w1", []int{d, f}, 0.02, 1}, {"b1", []int{f}, 0, 0},
		{"w2", []int{f, d}, 0.02, 0}, {"b2", []int{d}, 0, whole},
	}
}

func (c Config) last() []variable {
	all := []variable{{"gf", []int{c.Width}, ones, whole}}
	if !c.Llama {
		all = append(all, variable{"cf", []int{c.Width}, 0, whole})
	}
	return append(all, variable{"head", []int{c.Width, c.Vocabulary}, 0.02, 1})
}

// Parameters returns the number of parameters of the model.
func (c Config) Parameters() (sum int) {
	c = c.filled()
	count := func(of []variable, times int) {
		for _, v := range of {
			size := times
			for _, d := range v.dims {
				size *= d
			}
			sum += size
		}
	}
	count(c.first(), 1)
	count(c.layer(), c.Layers)
	count(c.last(), 1)
	return sum
}

// Rules returns the rules that shard the variables and their optimizer state over p logical
// devices.
func (c Config) Rules(p int) (rules logical.Rules) {
	if p == 1 {
		return nil
	}
	c = c.filled()
	add := func(of []variable, path string, stacked int) {
		for _, v := range of {
			if v.split == whole {
				continue
			}
			parts := slices.Repeat([]int{1}, stacked+len(v.dims))
			parts[stacked+v.split] = p
			rules = append(rules, logical.Match(path+v.name+`(_1st_moment|_2nd_moment)?$`, logical.SplitInto(parts...)))
		}
	}
	add(c.first(), "/", 0)
	if c.Loop {
		add(c.layer(), `/layers/`, 1)
	} else {
		add(c.layer(), `/layer\d+/`, 0)
	}
	add(c.last(), "/", 0)
	return rules
}

// make returns a variable. It adds the variable to the store if necessary.
func (v variable) make(scope *model.Scope, seed int) *model.Variable {
	return scope.WithInitializer(v.initializer(seed, 0)).VariableWithShape(v.name, shapes.Make(dtypes.Float32, v.dims...))
}

// stack adds a variable of n layers to the store with the initial values of separate layers. seed is the
// seed of the first layer, and consecutive seeds differ by step.
func (v variable) stack(scope *model.Scope, n, seed, step int) {
	scope.WithInitializer(v.initializer(seed, step)).VariableWithShape(v.name, shapes.Make(dtypes.Float32,
		append([]int{n}, v.dims...)...))
}

// initializer returns an initializer for zeros, ones, or pseudorandom numbers with the variable's
// deviation. The numbers are a hash of the element's index and the seed. A stack of layers has one
// more leading dimension, over which the seed increases by step.
func (v variable) initializer(seed, step int) model.VariableInitializer {
	return func(g *graph.Graph, shape shapes.Shape) *Node {
		switch v.deviation {
		case 0:
			return graph.Zeros(g, shape)
		case ones:
			return graph.Ones(g, shape)
		}
		indices := shape.Clone()
		indices.DType = dtypes.Uint32
		scalar := func(x uint32) *Node { return graph.Const(g, x) }
		h, stride := graph.Zeros(g, indices), uint32(1)
		for i := shape.Rank() - 1; i >= shape.Rank()-len(v.dims); i-- {
			h = graph.Add(h, graph.Mul(graph.Iota(g, indices, i), scalar(stride)))
			stride *= uint32(shape.Dimensions[i])
		}
		mix := func(x *Node, shift, times uint32) *Node {
			x = graph.BitwiseXor(x, graph.BitwiseShiftRightLogicalScalar(x, shift))
			if times == 0 {
				return x
			}
			return graph.Mul(x, scalar(times))
		}
		h = graph.Add(graph.Mul(h, scalar(2654435761)), scalar(uint32(seed*2246822519)))
		if shape.Rank() > len(v.dims) {
			h = graph.Add(h, graph.Mul(graph.Iota(g, indices, 0), scalar(uint32(step*2246822519))))
		}
		h = mix(mix(mix(h, 15, 2246822519), 13, 3266489917), 16, 0)
		u := graph.AddScalar(graph.DivScalar(graph.ConvertDType(h, dtypes.Float64), float64(1<<32)), -0.5)
		return graph.ConvertDType(graph.MulScalar(graph.MulScalar(u, v.deviation), math.Sqrt(12)), shape.DType)
	}
}
