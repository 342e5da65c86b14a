package pjrt

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// Execute enqueues one run of the program on its devices and returns without waiting for the run.
// Errors of the run are returned by [Buffer.Ready] and [Buffer.ToHost] of its results.
//
// args[d][i] is the argument for parameter i on device d of AddressableDevices, with the parameter's
// shape on one device. results[d][j] receives result j. If the entry is nil, Execute replaces it
// with a new Buffer, which the caller must close. If the entry is a closed or donated Buffer, or a
// Buffer that this call donates, Execute refills it. A live Buffer is an error. A loop that donates
// its state and passes the same Buffers as arguments and results does not allocate memory.
//
// An invalid buffer is an [*ArgumentError], and nothing is executed or donated. If the plugin
// rejects the launch, the buffers that the plugin has consumed are donated, and all others are
// unchanged. ctx is checked only before the launch.
//
// Execute waits while eight earlier launches of the program are running, because plugins keep the
// handle of a donated buffer until its run completes and have queues of limited length. Programs on
// several devices are enqueued one at a time per client.
func (l *LoadedExecutable) Execute(ctx context.Context, args, results [][]*Buffer, opts ExecuteOptions) error {
	if ctx.Err() != nil {
		return contextError(ctx, "execute")
	}
	if l.loadedHandle == nil {
		return zeroValueError("execute", "executable", "Compile")
	}
	if l.primaryState.CompareAndSwap(primaryIdle, primaryInUse) {
		s := l.primaryLaunch
		done, err := l.executeInPlace(s, args, results, &opts)
		l.putLaunch(s)
		if done {
			return err
		}
	}
	return l.acquireLaunchAndExecute(args, results, opts)
}

// acquireLaunchAndExecute implements Execute without the fast path of executeInPlace.
func (l *LoadedExecutable) acquireLaunchAndExecute(args, results [][]*Buffer, opts ExecuteOptions) error {
	if err := l.checkLists(args, results, opts); err != nil {
		return err
	}
	if len(l.devices) > 1 {
		// The lock is acquired before the launch, so that all goroutines share one launch and its limit.
		l.core.launchMu.Lock()
		defer l.core.launchMu.Unlock()
	}
	s, err := l.getLaunch(len(l.devices), len(args[0]), len(l.outputs))
	if err != nil {
		return l.launchError("execute", err)
	}
	err = l.execute(s, args, results, opts)
	l.putLaunch(s)
	return err
}

func (l *LoadedExecutable) execute(s *launchState, args, results [][]*Buffer, opts ExecuteOptions) error {
	if s.params == nil {
		if p := l.params.Load(); p != nil {
			s.params = *p
		}
	}
	n, numNonDonated, numDonated, err := l.acquireArguments(s, args, results, opts.Donate)
	if err != nil {
		l.releaseArguments(args, opts.Donate, n)
		return err
	}
	if s.numInPlace < len(s.slotStates) {
		if err := l.acquireResults(s, args, results, opts.Donate); err != nil {
			l.releaseResults(s, results)
			l.releaseArguments(args, opts.Donate, n)
			return err
		}
	}
	err = l.core.api.Execute(&s.Launch, numNonDonated, numDonated, opts.LaunchID)
	if err != nil {
		l.releaseAfterFailure(s, args, results, opts.Donate)
		return l.core.wrapError("execute", err)
	}
	if !s.resultsChecked {
		err = l.checkResultTypes(s, args)
	}
	l.releaseExecutedArguments(s, args, results, opts.Donate)
	if s.numInPlace < len(s.slotStates) {
		l.storeResults(s, results)
	}
	return err
}

// releaseExecutedArguments releases the arguments of a successful launch. It marks donated buffers
// as donated unless a result reuses them. In-place results, which replace the argument with the
// same index, are stored in the Buffers of these arguments.
func (l *LoadedExecutable) releaseExecutedArguments(s *launchState, args, results [][]*Buffer, donate []bool) {
	numDonated := 0
	for d, row := range args {
		dst := results[d]
		for i, b := range row {
			switch {
			case donate == nil || !donate[i]:
				b.release()
			case i < len(dst) && dst[i] == b:
				live.Untrack(unsafe.Pointer(b.handle.c))
				b.fill(s.Outs[d*s.numResults+i], l.outputs[i], l.devices[d], nil)
			default:
				live.Untrack(unsafe.Pointer(b.handle.c))
				b.handle.c = nil
				numDonated++
				if b.owner.Load() == s.id { // no result reuses the Buffer
					b.owner.Store(0)
					b.releaseExclusive(bufDonated)
				}
			}
		}
	}
	if numDonated > 0 {
		live.AddCount(live.Buffer, -numDonated)
		l.core.addDependents(dependentBuffer, -numDonated)
	}
}

// storeResults stores the results of a launch in existing Buffers, which it refills, or in new
// Buffers. It skips in-place results, which releaseExecutedArguments stores in the Buffers of the
// arguments.
func (l *LoadedExecutable) storeResults(s *launchState, results [][]*Buffer) {
	filled := 0
	for d, row := range results {
		for j, b := range row {
			k := d*len(row) + j
			switch s.slotStates[k] {
			case slotInPlace:
			case slotNew:
				l.core.addDependents(dependentBuffer, 1)
				row[j] = newBuffer(l.core, s.Outs[k], l.outputs[j], l.devices[d], nil)
			default:
				b.owner.Store(0)
				b.fill(s.Outs[k], l.outputs[j], l.devices[d], nil)
				filled++
			}
		}
	}
	if filled > 0 {
		live.AddCount(live.Buffer, filled)
		l.core.addDependents(dependentBuffer, filled)
	}
}

// checkResultTypes checks, after the first run, that the results have the shapes that the plugin
// reported. Later checks of buffers rely on these shapes. If the plugin did not report the shapes
// of the parameters, checkResultTypes sets them to the shapes of the arguments.
func (l *LoadedExecutable) checkResultTypes(s *launchState, args [][]*Buffer) error {
	for j, want := range l.outputs {
		dtype, err := l.core.api.BufferType(s.Outs[j])
		if err != nil {
			return l.core.wrapError("result type", err)
		}
		dims, err := l.core.api.BufferDims(s.Outs[j])
		if err != nil {
			return l.core.wrapError("result dimensions", err)
		}
		if have := newShapeInt64(DType(dtype), dims); !have.equal(want) {
			return &Error{Op: "execute", Code: Internal, Plugin: l.core.path,
				Msg: fmt.Sprintf("result %d is %v, but the plugin reported %v; close the results", j, have, want)}
		}
	}
	if l.params.Load() == nil {
		params := make([]*shape, len(args[0]))
		for i, b := range args[0] {
			params[i] = b.shape.Load()
		}
		l.params.CompareAndSwap(nil, l.reuseOutputShapes(params))
	}
	s.params = *l.params.Load()
	s.resultsChecked = true
	// reuseOutputShapes makes equal shapes of parameters and results identical pointers.
	s.sameShapes = len(s.params) > 0 && slices.Equal(s.params, l.outputs)
	return nil
}
