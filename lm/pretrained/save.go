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

// Save writes a model to a directory in the format of Hugging Face. It is the inverse of [Load]
// with the same rules. It writes the variables' values on the devices or, before the first step, in
// the store. tensors are the tensors to write: [weights.File.Tensors] of the files from which the
// model was loaded, or [weights.Config.Tensors]. Tensors that the rules ignore are not written.
//
// All values are in the host's memory at the same time. With several processes all processes must
// call Save, and process 0 writes. See [weights.Plan.Write] for the files.
func Save(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, dir string, tensors []weights.Tensor,
	rules weights.Rules, opts weights.WriteOptions) error {
	onDevices := s.Variables(store)
	// Further variables, such as the optimizer's state, are not written.
	plan, err := newPlan(s, store, tensors, rules, Options{OptionalVariables: []string{".*"}})
	if err != nil {
		return err
	}
	used := plan.Tensors()
	tensors = slices.DeleteFunc(slices.Clone(tensors), func(t weights.Tensor) bool {
		return !slices.Contains(used,
			t.Name)
	})
	read := func(ctx context.Context, v weights.Variable) ([]byte, error) {
		if placed, ok := onDevices.Lookup(v.Path); ok {
			return copyTensorBytes(placed.Value(ctx))
		}
		stored := store.GetVariable(v.Path)
		if stored == nil || !stored.HasValue() {
			return nil, &errkind.Fault{Op: "pretrained: save", Subject: "variable " + v.Path, Reason: "it has no value yet",
				Hint: "run a step first", Class: errkind.FailedPreconditionError}
		}
		return copyTensorBytes(stored.Value())
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
	return plan.Write(ctx, dir, tensors, func(_ context.Context, v weights.Variable) ([]byte,
		error) {
		return values[v.Path], nil
	}, opts)
}

// copyTensorBytes returns a copy of a tensor's bytes, or err if it is not nil.
func copyTensorBytes(t *tensors.Tensor, err error) (data []byte, _ error) {
	if err == nil {
		err = t.ConstBytes(func(b []byte) { data = slices.Clone(b) })
	}
	return data, err
}
