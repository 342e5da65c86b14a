package corpus

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func stack(rc *strategy.ReplicaContext, name string, x *Node, widths ...int) *Node {
	for i, width := range widths {
		x = layers.Dense(rc.Scope(fmt.Sprintf("%s%d", name, i)), x, true, width)
		if i < len(widths)-1 {
			x = activation.Relu(x)
		}
	}
	return x
}

// clicks returns a DLRM: an embedding table for each category, the products of the embeddings, and
// dense features.
func clicks(rowCount, numbers, categories, table, width int) Program {
	return Program{
		Inputs:    []Input{floats(rowCount, numbers), ints(table, rowCount, categories), ints(2, rowCount, 1)},
		Optimizer: momentum,
		Splits:    func(p int) logical.Rules { return logical.Rules{columns(p, `/category\d+/embeddings`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			dense := stack(rc, "bottom", in[0], 4*width, width)
			parts := []*Node{dense}
			for i, column := range graph.Split(in[1], 1, categories) {
				parts = append(parts, layers.Embedding(rc.Scope(fmt.Sprintf("category%d", i)), column, dtypes.Float32, table,
					width))
			}
			all := graph.Stack(parts, 1)
			products := graph.Einsum("bid,bjd->bij", all, all)
			lower := graph.TakeLowerTriangular(products, -1)
			x := graph.Concatenate([]*Node{dense, graph.Reshape(lower, lower.Shape().Dim(0), -1)}, -1)
			logit := stack(rc, "top", x, 8*width, 4*width, 1)
			label := graph.ConvertDType(in[2], dtypes.Float32)
			return graph.ReduceAllMean(loss.BinaryCrossentropyLogits([]*Node{label}, []*Node{logit}))
		},
	}
}

// towers returns a two-tower model. It compares each query with the items of all replicas.
func towers(rowCount, users, items, width int) Program {
	return Program{
		Inputs: []Input{ints(users, rowCount), ints(items, rowCount)},
		Splits: func(p int) logical.Rules { return logical.Rules{rows(p, `/(user|item)/embeddings`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			tower := func(name string, ids *Node, size int) *Node {
				x := layers.Embedding(rc.Scope(name), ids, dtypes.Float32, size, width)
				return graph.L2Normalize(stack(rc, name+"_dense", x, 2*width, width), -1)
			}
			query, item := tower("user", in[0], users), tower("item", in[1], items)
			all := rc.AllGather(item, 0)
			scores := graph.MulScalar(graph.Einsum("qd,id->qi", query, all), 20)
			local := query.Shape().Dim(0)
			first := graph.MulScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int32), float64(local))
			own := graph.Add(graph.Iota(rc.Graph(), shapes.Make(dtypes.Int32, local), 0), first)
			return tokenLoss(own, scores)
		},
	}
}

// sequential returns a transformer over the items that a user has seen, with sampled negatives.
func sequential(rowCount, length, items, width, heads, negatives int) Program {
	return Program{
		Inputs: []Input{ints(items, rowCount, length), ints(items, rowCount, length), ints(items, rowCount, length,
			negatives)},
		Splits: func(p int) logical.Rules { return append(blockRules(p), columns(p, `/items/embeddings`)) },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := layers.Embedding(rc.Scope("items"), in[0], dtypes.Float32, items, width)
			x = block(rc, "layer0", x, nil, heads, true)
			table := rc.Scope("items").VariableWithShape("embeddings", shapes.Make(dtypes.Float32, items,
				width)).NodeValue(rc.Graph())
			right := graph.Einsum("bld,bld->bl", x, graph.Gather(table, graph.InsertAxes(in[1], -1)))
			wrong := graph.Einsum("bld,blnd->bln", x, graph.Gather(table, graph.InsertAxes(in[2], -1)))
			return graph.ReduceAllMean(graph.Add(graph.Softplus(graph.Neg(right)), graph.ReduceMean(graph.Softplus(wrong), -1)))
		},
	}
}

// factors returns a matrix factorization of a table of ratings.
func factors(rowCount, users, items, width int) Program {
	return Program{
		Inputs:    []Input{ints(users, rowCount), ints(items, rowCount), floats(rowCount)},
		Optimizer: func() optimizer.Interface { return optimizer.RMSProp().LearningRate(0.01).Done() },
		Splits:    func(p int) logical.Rules { return logical.Rules{columns(p, `/(user|item)/embeddings`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			u := layers.Embedding(rc.Scope("user"), in[0], dtypes.Float32, users, width)
			v := layers.Embedding(rc.Scope("item"), in[1], dtypes.Float32, items, width)
			bias := graph.Add(layers.Embedding(rc.Scope("user_bias"), in[0], dtypes.Float32, users, 1),
				layers.Embedding(rc.Scope("item_bias"), in[1], dtypes.Float32, items, 1))
			rating := graph.Add(graph.ReduceSum(graph.Mul(u, v), -1), graph.Squeeze(bias, -1))
			return graph.ReduceAllMean(graph.Square(graph.Sub(rating, in[2])))
		},
	}
}

// wide returns a logistic regression over many features.
func wide(rowCount, features int) Program {
	return Program{
		Inputs:    []Input{floats(rowCount, features), ints(2, rowCount, 1)},
		Optimizer: momentum,
		Splits:    func(p int) logical.Rules { return logical.Rules{rows(p, `/wide/dense/weights`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			logit := layers.Dense(rc.Scope("wide"), in[0], true, 1)
			label := graph.ConvertDType(in[1], dtypes.Float32)
			return graph.ReduceAllMean(loss.BinaryCrossentropyLogits([]*Node{label}, []*Node{logit}))
		},
	}
}

// policy returns a reinforcement learning program with a clipped policy loss and a value loss.
func policy(rowCount, observed, width, actions int) Program {
	return Program{
		Inputs: []Input{floats(rowCount, observed), ints(actions, rowCount, 1), floats(rowCount), floats(rowCount),
			floats(rowCount)},
		Optimizer: func() optimizer.Interface {
			return optimizer.Adam().WeightDecay(0.01).LearningRate(1e-3).Done()
		},
		Splits: func(p int) logical.Rules {
			return logical.Rules{columns(p, `/body0/dense/weights`), rows(p, `/body1/dense/weights`)}
		},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := graph.Tanh(stack(rc, "body", in[0], width, width))
			chances := graph.LogSoftmax(layers.Dense(rc.Scope("actions"), x, true, actions), -1)
			chosen := graph.OneHot(graph.Squeeze(in[1], -1), actions, dtypes.Float32)
			ratio := graph.Exp(graph.Sub(graph.ReduceSum(graph.Mul(chances, chosen), -1), in[2]))
			gain := graph.Min(graph.Mul(ratio, in[3]), graph.Mul(graph.ClipScalar(ratio, 0.8, 1.2), in[3]))
			value := graph.Squeeze(layers.Dense(rc.Scope("value"), x, true, 1), -1)
			entropy := graph.Neg(graph.ReduceSum(graph.Mul(graph.Exp(chances), chances), -1))
			l := graph.Sub(graph.Square(graph.Sub(value, in[4])), graph.Add(gain, graph.MulScalar(entropy, 0.01)))
			return graph.ReduceAllMean(l)
		},
	}
}
