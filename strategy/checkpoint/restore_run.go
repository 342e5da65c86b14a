package checkpoint

import (
	"context"
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// restoration is the state of a running restore.
type restoration struct {
	checkpoint     *Checkpoint
	group          Group
	opts           RestoreOptions
	sharedStrategy *strategy.TPUStrategy // nil unless several processes share it

	// targets, readers and onDevice have an element for each of the checkpoint's variables. targets has
	// nil for a variable that the group lacks. onDevice is true for a variable that is restored on the
	// devices.
	targets  []Variable
	readers  []*variableReader
	onDevice []bool
	// variables and deviceReaders have an element for each variable that is restored on the devices.
	variables     []*strategy.Variable
	deviceReaders []lazytensor.Reader
}

// multiProcessStrategy returns the strategy of the variables if several processes share the
// strategy, and otherwise nil.
func multiProcessStrategy(g Group) *strategy.TPUStrategy {
	for _, v := range g.Variables {
		if s := strategyOf(v); s != nil && s.NumProcesses() > 1 {
			return s
		}
	}
	return nil
}

// selectVariables finds the variable of the group for each saved variable. It also determines the
// variables that are restored directly to the devices.
func (r *restoration) selectVariables() (err error) {
	if r.targets, err = r.checkpoint.matchVariables(r.group, r.opts); err != nil {
		return err
	}
	r.readers, r.onDevice = make([]*variableReader, len(r.checkpoint.variables)), make([]bool, len(r.checkpoint.variables))
	for i := range r.checkpoint.variables {
		r.readers[i] = r.checkpoint.newReader(&r.checkpoint.variables[i])
		v, ok := asShardedVariable(r.targets[i])
		if r.onDevice[i] = ok && (len(r.variables) == 0 || v.Strategy() == r.variables[0].Strategy()); r.onDevice[i] {
			r.variables, r.deviceReaders = append(r.variables, v), append(r.deviceReaders, r.readers[i])
		}
	}
	return nil
}

// hasDeviceMemory reports whether the devices have enough free memory to store the new values while
// they still store the old values.
func (r *restoration) hasDeviceMemory() bool {
	return len(r.variables) == 0 || engine.Internal(r.strategy()).HasMemoryFor(r.variables)
}

func (r *restoration) strategy() *strategy.TPUStrategy { return r.variables[0].Strategy() }

// restoreTogether reads all values for the devices into additional device memory, verifies the
// checkpoint, and then replaces all old values at once.
func (r *restoration) restoreTogether(ctx context.Context) error {
	check := func(ctx context.Context) error { return r.shareError(ctx, r.verify(ctx)) }
	if len(r.variables) == 0 {
		return check(ctx)
	}
	checked := false
	_, err := engine.Internal(r.strategy()).LoadVariables(ctx, r.variables, r.deviceReaders, maxReaders(),
		func(ctx context.Context) error {
			checked = true
			return check(ctx)
		})
	if err != nil && !checked {
		err = r.shareError(ctx, err)
	}
	return err
}

// restoreOneByOne verifies the checkpoint and then replaces one variable on the devices after
// another. If earlierErr is not nil, this process has already failed: restoreOneByOne changes no
// variable, but sends the error to the other processes, which then also fail.
func (r *restoration) restoreOneByOne(ctx context.Context, earlierErr error) error {
	if earlierErr == nil {
		earlierErr = r.verify(ctx)
	}
	if err := r.shareError(ctx, earlierErr); err != nil {
		return err
	}
	for i, v := range r.variables { // all blocks are verified
		if _, err := engine.Internal(r.strategy()).LoadVariables(ctx, r.variables[i:i+1], r.deviceReaders[i:i+1],
			maxReaders(), nil); err != nil {
			return variableError(v.Path(), "not restored", "", err)
		}
	}
	return nil
}

// verify verifies the file headers that are assigned to this process. Unless the options disable
// it, verify also verifies the variables of a single-file checkpoint, or the variables of a sharded
// checkpoint that are restored on the host. Variables that are restored to the devices are verified
// while they are read.
func (r *restoration) verify(ctx context.Context) error {
	index, count := 0, 1
	if r.sharedStrategy != nil {
		index, count = r.sharedStrategy.Process(), r.sharedStrategy.NumProcesses()
	}
	if r.opts.SkipVerify {
		return r.checkpoint.verifyHeaders(ctx, index, count)
	}
	if r.checkpoint.sharded == nil {
		return r.checkpoint.verifyVariables(ctx, r.readers, 0, 1)
	}
	var readers []*variableReader
	for i, p := range r.readers {
		if !r.onDevice[i] && r.isRestored(i) {
			readers = append(readers, p)
		}
	}
	return r.checkpoint.verifyVariables(ctx, readers, index, count)
}

// isRestored reports whether saved variable i is restored, either to an existing variable or to a
// variable that the restore creates.
func (r *restoration) isRestored(i int) bool {
	return r.targets[i] != nil || r.group.createsVariable(r.checkpoint.variables[i].Info)
}

// maxReason limits the text of an error that one process reports to the others, in bytes.
const maxReason = 4 << 10

// shareError exchanges errors between the processes, so that all processes fail if one fails. The
// parameter mine is the error of this process. If it is not nil, shareError returns it. Otherwise
// shareError returns the error of another process, with the number of that process.
func (r *restoration) shareError(ctx context.Context, mine error) error {
	if r.sharedStrategy == nil {
		return mine
	}
	reason := ""
	if mine != nil {
		reason = mine.Error()
		reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	}
	all, err := r.sharedStrategy.GatherBytes(context.WithoutCancel(ctx), "checkpoint: restore", []byte(reason))
	switch {
	case mine != nil:
		return mine
	case err != nil:
		return wrapError("restore", r.checkpoint.path, err)
	}
	for process, reason := range all {
		if len(reason) > 0 {
			return wrapError("restore", r.checkpoint.path, &errkind.Fault{Op: fmt.Sprintf("process %d", process),
				Reason: string(reason), Class: errkind.DataLossError})
		}
	}
	return nil
}

// restoreOnHost restores, in the saved order, the variables that are not restored directly to the
// devices.
func (r *restoration) restoreOnHost(ctx context.Context) error {
	for i := range r.checkpoint.variables {
		v := &r.checkpoint.variables[i]
		if r.onDevice[i] || !r.isRestored(i) {
			continue
		}
		value, err := r.checkpoint.readTensor(ctx, v)
		if err != nil {
			return err
		}
		if r.targets[i] != nil {
			err = r.targets[i].RestoreValue(ctx, value)
		} else {
			err = r.group.Create(v.Info, value)
		}
		if err != nil {
			return variableError(v.Path, "not restored", "", err)
		}
	}
	return nil
}
