package strategy

import (
	"context"
	"slices"
)

// NonSlotDevices returns where state that belongs to no variable lives: the first
// host for TPUStrategy, all worker devices for MirroredStrategy.
func (e *Extended) NonSlotDevices() []string {
	s := e.strategy
	if s.opts.Semantics == TensorFlowMirrored {
		return e.WorkerDevices(context.Background())
	}
	return []string{s.hostName(0)}
}

// UpdateNonSlot runs fn on the non-slot devices: TensorFlow's update_non_slot. As
// in TPUStrategy it runs once, on the first host, with args as they are, and its
// result is returned as it is.
//
// As in MirroredStrategy, if [Options.Semantics] says so, it runs once for each of
// devices: the one at position i is number i and receives the arguments' components
// i. The results are regrouped. Of fewer devices than replicas that is an *[Objects]
// with a value for each run, or if there is one device its result; the functions'
// operations run on all devices still, and they cannot write variables, whose other
// components would fall behind.
func (e *Extended) UpdateNonSlot(ctx context.Context, devices []string, fn UpdateFunc, args ...any) (any, error) {
	const op = "update non-slot"
	s := e.strategy
	results, err := e.updateNonSlot(ctx, devices, fn, args)
	switch {
	case err != nil:
		return nil, err
	case s.opts.Semantics != TensorFlowMirrored:
		return results[0], nil
	case len(results) == s.replicas:
		return s.group(ctx, op, results)
	case len(results) == 1:
		return results[0], nil
	}
	return zipNest(op, results, func(_ string, leaves []any) (any, error) {
		one, ok := asOne(leaves)
		if _, value := one.(Value); !ok || value && !same(one, leaves[0]) { // the value has more components
			return NewObjects(leaves...), nil
		}
		return one, nil
	})
}

// UpdateNonSlotEach is [Extended.UpdateNonSlot] with group=False: the results, one
// a run of fn. A distributed one of the first host's is taken apart, see
// [TPUStrategy.LocalResultsOf].
func (e *Extended) UpdateNonSlotEach(ctx context.Context, devices []string, fn UpdateFunc, args ...any) ([]any, error) {
	results, err := e.updateNonSlot(ctx, devices, fn, args)
	if err != nil || e.strategy.opts.Semantics == TensorFlowMirrored {
		return results, err
	}
	return e.strategy.LocalResultsOf(results[0])
}

// updateNonSlot gives the result of each run.
func (e *Extended) updateNonSlot(ctx context.Context, devices []string, fn UpdateFunc, args []any) ([]any, error) {
	const op = "update non-slot"
	s := e.strategy
	if err := s.requireCross(ctx, op); err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, fault(AssertionError, op, "use NonSlotDevices", "no devices")
	}
	if s.opts.Semantics != TensorFlowMirrored {
		return runReplicas(ctx, 1, func(c *coroutine, r int) (any, error) {
			rc := s.eager(ctx, c, r, true)
			rc.ctx = withMode(ctx, mode{strategy: s, update: -1})
			return fn(&UpdateContext{rc: rc, device: s.hostName(0)}, args...)
		})
	}
	if len(devices) > s.replicas {
		return nil, fault(ValueError, op, "use NonSlotDevices", "%d devices for %d replicas", len(devices), s.replicas)
	}
	all := e.WorkerDevices(ctx)
	for _, d := range devices {
		if !slices.Contains(all, d) {
			return nil, fault(ValueError, op, "use NonSlotDevices", "%q is no device of the strategy", d)
		}
	}
	return e.update(ctx, nil, devices, fn, args)
}
