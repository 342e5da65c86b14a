package transformer

import (
	"fmt"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
)

// layers applies the blocks, in a loop or unrolled. seed is the seed of the first variable of the
// first layer.
func (d decoder) layers(x *Node, seed int) *Node {
	variables := d.layer()
	block := func(scope *model.Scope, x *Node, seed int) *Node {
		v := d.values(scope, variables, seed)
		if d.Llama {
			return d.llama(x, v)
		}
		return d.gpt(x, v)
	}
	if d.Loop {
		scope := d.rc.Scope("layers")
		for i, v := range variables {
			v.stack(scope, d.Layers, seed+i, len(variables))
		}
		return loop.Layers(scope, d.Layers, x, func(scope *model.Scope, x *Node) *Node { return block(scope, x, seed) },
			loop.Options{Keep: d.Keep})
	}
	for i := range d.Layers {
		one := func(x *Node) *Node {
			return block(d.rc.Scope(fmt.Sprintf("layer%02d", i)), x, seed+i*len(variables))
		}
		if d.Keep.RegionPolicy().Selective {
			x = remat.Block(d.Keep, x, one)
		} else {
			x = one(x)
		}
	}
	return x
}
