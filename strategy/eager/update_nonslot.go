package eager

import (
	"context"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// NonSlotDevices returns the names of the devices on which [Extended.UpdateNonSlot] updates state
// that belongs to no variable: the first host, or with [strategy.TensorFlowMirrored] all worker
// devices. It corresponds to TensorFlow's non_slot_devices.
func (e *Extended) NonSlotDevices() []string {
	s := e.strategy
	if s.Semantics() == strategy.TensorFlowMirrored {
		return e.WorkerDevices(context.Background())
	}
	_, hosts, _ := engine.Internal(s).DeviceNames()
	return []string{hosts[0]}
}

// UpdateNonSlot runs fn on the devices of [Extended.NonSlotDevices] to update state that belongs to
// no variable, like TensorFlow's update_non_slot. As in TPUStrategy it runs fn once, on the first
// host, with args unchanged, and returns the result of fn unchanged. In fn, a read of a variable
// returns its cross-replica value, and a write changes all components. An operation of fn on a
// *[strategy.PerReplica] whose tensors differ returns an [*strategy.Error] of kind ValueError.
//
// In a merge call of a compiled step fn is called once, while the step is traced, with
// *[MergeValue] values. If fn adds no operation to the step, for example because it only changes Go
// values, UpdateNonSlot returns [strategy.ErrContext].
//
// With [strategy.TensorFlowMirrored] it runs fn once for each of the given devices: the function
// for devices[i] receives component i of each argument. The results are combined as in
// [Extended.Regroup]. With fewer devices than replicas the result is an *[strategy.Objects] with a
// value for each run, or the result itself for one device. The operations of fn still run on all
// devices. fn cannot write variables, because their other components would not be updated.
//
// In a job with several processes, each process runs fn for its own devices. If fn runs once on the
// first host, or on fewer devices than there are replicas, every process runs it.
func (e *Extended) UpdateNonSlot(ctx context.Context, devices []string, fn UpdateFunc, args ...any) (any, error) {
	const op = "update non-slot"
	s := e.strategy
	results, in, err := e.updateNonSlot(ctx, op, devices, fn, args)
	switch {
	case err != nil:
		return nil, err
	case in != nil || s.Semantics() != strategy.TensorFlowMirrored:
		return results[0], nil
	case len(results) == s.NumReplicasInSync():
		return e.regroup(ctx, op, results, true)
	case len(results) == 1:
		return results[0], nil
	}
	return nesting.Zip(op, results, func(_ string, leaves []any) (any, error) {
		one, ok := commonValue(leaves)
		// the value has more components
		if _, value := one.(strategy.Value); !ok || value && !nesting.IsSameLeaf(one, leaves[0]) {
			return strategy.NewObjects(leaves...), nil
		}
		return one, nil
	})
}

// UpdateNonSlotEach is like [Extended.UpdateNonSlot], but returns one result for each run of fn,
// without combining the results. It corresponds to TensorFlow's update_non_slot with group=False.
// If a function on the first host returns a distributed value, UpdateNonSlotEach returns its
// components; see [Extended.LocalResultsOf].
func (e *Extended) UpdateNonSlotEach(ctx context.Context, devices []string, fn UpdateFunc, args ...any) ([]any, error) {
	const op = "update non-slot"
	results, in, err := e.updateNonSlot(ctx, op, devices, fn, args)
	switch {
	case err != nil:
		return nil, err
	case in != nil:
		return in.splitNest(op, results[0])
	case e.strategy.Semantics() != strategy.TensorFlowMirrored:
		return e.LocalResultsOf(results[0])
	}
	return e.localResults(results), nil
}

// checkNonSlot returns an error if [Extended.UpdateNonSlot] does not support the given devices.
func (e *Extended) checkNonSlot(ctx context.Context, op string, devices []string) error {
	s := e.strategy
	if len(devices) == 0 {
		return fault.New(errkind.AssertionError, op, "use NonSlotDevices", "no devices")
	}
	all := e.NonSlotDevices()
	if s.Semantics() == strategy.TensorFlowMirrored {
		all = e.WorkerDevices(ctx)
	}
	if len(devices) > len(all) {
		return fault.New(errkind.ValueError, op, "use NonSlotDevices", "%d devices, where there are %d",
			len(devices), len(all))
	}
	for _, d := range devices {
		if slices.Contains(all, d) {
			continue
		}
		if s.Semantics() != strategy.TensorFlowMirrored {
			return fault.New(errkind.ValueError, op, "use NonSlotDevices",
				"%q: a non-slot update runs on the first host, %q, alone", d, all[0])
		}
		return fault.New(errkind.ValueError, op, "use NonSlotDevices", "%q is no device of the strategy", d)
	}
	return nil
}

// updateNonSlot runs fn for the given devices and returns the result of each run. In a merge call
// of a compiled step it returns one result and the MergeContext of the call.
func (e *Extended) updateNonSlot(ctx context.Context, op string, devices []string, fn UpdateFunc,
	args []any) (results []any, in *MergeContext, err error) {
	s := e.strategy
	if in, err = e.mergeContext(ctx, op); err == nil {
		err = e.checkNonSlot(ctx, op, devices)
	}
	mirrored := s.Semantics() == strategy.TensorFlowMirrored
	switch {
	case err != nil:
	case in != nil && mirrored && len(devices) < s.NumReplicasInSync():
		err = &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
			Reason: "of some of the devices, in a compiled step that runs on all", Hint: "give it all of NonSlotDevices"}
	case in != nil:
		results = make([]any, 1)
		results[0], err = e.traceUpdate(ctx, in, op, nil, fn, args)
	case mirrored:
		results, err = e.updateComponents(ctx, nil, devices, fn, args)
	default:
		results, err = e.runReplicas(ctx, 1, 1, func(c *coroutine, _ int) (any, error) {
			rc := &ReplicaContext{strategy: s, ctx: mode.With(ctx, mode.Cross(s)), coroutine: c, inUpdate: true,
				onHost: true}
			return fn(&UpdateContext{rc: rc, device: e.NonSlotDevices()[0]}, args...)
		})
	}
	return results, in, err
}
