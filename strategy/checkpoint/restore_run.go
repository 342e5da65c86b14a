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

	targets []Variable
	readers []*variableReader // one for each of the checkpoint's variables
	// variables are restored on the devices from the parts in from. placed has the checkpoint's
	// variables that are restored this way.
	variables     []*strategy.Variable
	deviceReaders []lazytensor.Reader
	onDevice      []bool
}

// multiProcessStrategy returns the strategy of the group's variables if several processes share it,
// or nil.
func multiProcessStrategy(g Group) *strategy.TPUStrategy {
	for _, v := range g.Variables {
		if s := strategyOf(v); s != nil && s.NumProcesses() > 1 {
			return s
		}
	}
	return nil
}

// selectVariables selects the variables that are restored on the devices.
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

// hasRoom reports whether the devices have memory for the new values in addition to the old ones.
func (r *restoration) hasRoom() bool {
	return len(r.variables) == 0 || engine.Internal(r.strategy()).HasMemoryFor(r.variables)
}

// strategy returns the strategy of the variables that are restored to devices.
func (r *restoration) strategy() *strategy.TPUStrategy { return r.variables[0].Strategy() }

// restoreTogether reads all values for the devices into additional device memory, verifies
// everything, and then replaces the old values.
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

// restoreOneByOne verifies everything and then replaces one variable after another. failed is an
// earlier error.
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

// verify verifies this process's share of the files' headers. Unless the options skip it, verify
// also verifies the variables that are not read to the devices; for a sharded checkpoint only those
// that are restored. Variables that are read to the devices are verified during that read.
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

// isRestored reports whether a saved variable is restored.
func (r *restoration) isRestored(i int) bool {
	return r.targets[i] != nil || r.group.createsVariable(r.checkpoint.variables[i].Info)
}

// maxReason limits the text of an error that one process reports to the others, in bytes.
const maxReason = 4 << 10

// shareError returns an error on all processes if one of them has an error, before any of them
// changes a variable. The error contains the reason and the number of the process that failed.
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

// restoreOnHost restores the variables that are not restored on the devices, in the order of the
// save.
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
