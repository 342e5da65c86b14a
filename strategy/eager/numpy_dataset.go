package eager

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// MakeNumpyDataset makes a dataset of host arrays, whose element i has row i of each leaf of the
// nest: TensorFlow's make_numpy_dataset. Slices are tuples, maps of strings are dictionaries. A
// leaf is a tensor, or a value that tensors are made of; all leaves have the same number of rows.
func (e *Extended) MakeNumpyDataset(nest any) (input.Dataset, error) {
	element, err := e.elementOf(nest)
	if err != nil {
		return input.Dataset{}, err
	}
	ds := input.FromSlices(element)
	return ds, ds.Err()
}

func (e *Extended) elementOf(nest any) (input.Element, error) {
	switch x := nest.(type) {
	case []any:
		members := make([]input.Element, len(x))
		for i := range x {
			var err error
			if members[i], err = e.elementOf(x[i]); err != nil {
				return input.Element{}, err
			}
		}
		return input.Tuple(members...), nil
	case map[string]any:
		members := map[string]input.Element{}
		for k := range x {
			var err error
			if members[k], err = e.elementOf(x[k]); err != nil {
				return input.Element{}, err
			}
		}
		return input.Dict(members), nil
	}
	t, err := hostdata.Tensor(nest)
	if err != nil {
		return input.Element{}, &strategy.Error{Op: "strategy: dataset", Reason: fmt.Sprintf("a leaf of type %T", nest), Err: err, Class: errkind.TypeError}
	}
	kind, ok := input.KindOf(t.DType())
	if !ok {
		return input.Element{}, fault.New(errkind.TypeError, "dataset", "convert it", "a leaf of dtype %s", t.DType())
	}
	var leaf input.Tensor
	var failed error
	if err := t.ConstBytes(func(data []byte) { leaf, failed = input.FromBytes(kind, data, t.Shape().Dimensions...) }); err != nil {
		return input.Element{}, fault.Of("dataset", err, "")
	}
	return input.Leaf(leaf), failed
}
