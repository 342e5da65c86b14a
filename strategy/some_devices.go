package strategy

import (
	"context"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
)

// keep gives up the devices but some. What reads the value finds it there; a step that takes it
// brings it to all for the time of the run.
func (v *deviceValue) keep(only []bool) error {
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

// spread brings values that are on some devices to all, for the time of a run. release closes the
// copies.
func spread(ctx context.Context, values []Value) (all []Value, release func(), err error) {
	if !slices.ContainsFunc(values, func(v Value) bool { return v.base().only != nil }) {
		return values, nothing, nil // without an allocation
	}
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

func nothing() {}
