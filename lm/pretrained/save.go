package pretrained

import (
	"context"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Save writes a model to a directory as files of Hugging Face, by the rules that [Load] reads them
// with: the variables as they are on the devices, or in the store before the first step. like are
// the tensors to write: those of the file that the model came from, [weights.File.Tensors], or
// [weights.Config.Tensors]. Tensors that the rules ignore are left out.
//
// It holds all values in the host's memory. With several processes all call it, and the first one
// writes. See [weights.Plan.Write] for the files.
func Save(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, dir string, like []weights.Tensor, rules weights.Rules, opts weights.WriteOptions) error {
	onDevices := s.Variables(store)
	// What the model has beside them, its optimizer's state for example, is not written.
	plan, err := planOf(s, store, like, rules, Options{Keep: []string{".*"}})
	if err != nil {
		return err
	}
	used := plan.Tensors()
	like = slices.DeleteFunc(slices.Clone(like), func(t weights.Tensor) bool { return !slices.Contains(used, t.Name) })
	read := func(ctx context.Context, v weights.Variable) ([]byte, error) {
		if placed, ok := onDevices.Lookup(v.Path); ok {
			return bytesOf(placed.Value(ctx))
		}
		held := store.GetVariable(v.Path)
		if held == nil || !held.HasValue() {
			return nil, &errkind.Fault{Op: "pretrained: save", Subject: "variable " + v.Path, Reason: "it has no value yet", Hint: "run a step first", Class: errkind.FailedPreconditionError}
		}
		return bytesOf(held.Value())
	}
	values := map[string][]byte{}
	for _, v := range plan.Variables() { // all processes read together
		if values[v.Path], err = read(ctx, v); err != nil {
			return err
		}
	}
	if s.Process() > 0 {
		return nil
	}
	return plan.Write(ctx, dir, like, func(_ context.Context, v weights.Variable) ([]byte, error) { return values[v.Path], nil }, opts)
}

// bytesOf copies a tensor's elements.
func bytesOf(t *tensors.Tensor, err error) (data []byte, _ error) {
	if err == nil {
		err = t.ConstBytes(func(b []byte) { data = slices.Clone(b) })
	}
	return data, err
}
