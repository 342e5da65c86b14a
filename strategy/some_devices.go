package strategy

import (
	"context"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
)

// toHost copies a mirrored value to the host, of whichever process its parts are.
func (m *Mirrored) toHost(ctx context.Context) (*tensors.Tensor, error) {
	if m.strategy.everywhere(false, m.annotation) {
		return m.Value(ctx)
	}
	whole, err := copyAs(ctx, m, logical.Replicated())
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	return whole.Value(ctx)
}

// keep gives up the devices but some. What reads the value finds it there; a step that takes it
// brings it to all for the time of the run.
func (v *distributed) keep(only []bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var given mesh.Buffers
	for d, b := range v.buffers {
		if !only[d] && b != nil {
			given, v.buffers[d] = append(given, b), nil
		}
	}
	v.only = only
	return given.Close()
}

// on says whether a partition holds its part of the value.
func (v *distributed) on(d int) bool { return v.only == nil || v.only[d] }

// spread brings values that are on some devices to all, for the time of a run. release closes the
// copies.
func spread(ctx context.Context, values []Value) (all []Value, release func(), err error) {
	for _, v := range values {
		if v.base().only != nil {
			return spreadSome(ctx, values)
		}
	}
	return values, nothing, nil
}

func spreadSome(ctx context.Context, values []Value) (all []Value, release func(), err error) {
	var made []Value
	all = slices.Clone(values)
	release = func() {
		for _, v := range made {
			_ = v.Close()
		}
	}
	for i, v := range values {
		if v.base().only == nil {
			continue
		}
		t, err := v.Local(ctx, 0)
		if err == nil {
			var m *Mirrored
			if m, err = v.base().strategy.Mirror(ctx, t, v.Annotation()); err == nil {
				all[i], made = m, append(made, m)
			}
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return all, release, nil
}
