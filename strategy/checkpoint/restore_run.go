package checkpoint

import (
	"context"
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// restore is the state of a running restore.
type restore struct {
	c      *Checkpoint
	group  Group
	opts   RestoreOptions
	shared *strategy.TPUStrategy // nil unless several processes share it

	targets []Variable
	parts   []*source // one for each of the checkpoint's variables
	// variables are restored on the devices from the parts in from. placed has the checkpoint's
	// variables that are restored this way.
	variables []*strategy.Variable
	from      []lazy.Parts
	placed    []bool
}

// sharedBy returns the strategy of the group's variables if several processes share it, or nil.
func sharedBy(g Group) *strategy.TPUStrategy {
	for _, v := range g.Variables {
		if s := strategyOf(v); s != nil && s.NumProcesses() > 1 {
			return s
		}
	}
	return nil
}

// plan selects the variables that are restored on the devices.
func (r *restore) plan() (err error) {
	if r.targets, err = r.c.match(r.group, r.opts); err != nil {
		return err
	}
	r.parts, r.placed = make([]*source, len(r.c.variables)), make([]bool, len(r.c.variables))
	for i := range r.c.variables {
		r.parts[i] = r.c.parts(&r.c.variables[i])
		v, ok := inParts(r.targets[i])
		if r.placed[i] = ok && (len(r.variables) == 0 || v.Strategy() == r.variables[0].Strategy()); r.placed[i] {
			r.variables, r.from = append(r.variables, v), append(r.from, r.parts[i])
		}
	}
	return nil
}

// room reports whether the devices have memory for the new values in addition to the old ones.
func (r *restore) room() bool {
	return len(r.variables) == 0 || engine.Internal(r.strategy()).HasMemoryFor(r.variables)
}

// strategy returns the strategy of the variables that are restored to devices.
func (r *restore) strategy() *strategy.TPUStrategy { return r.variables[0].Strategy() }

// together reads all values for the devices into additional device memory, verifies everything, and
// then replaces the old values.
func (r *restore) together(ctx context.Context) error {
	check := func(ctx context.Context) error { return r.agree(ctx, r.check(ctx)) }
	if len(r.variables) == 0 {
		return check(ctx)
	}
	checked := false
	_, err := engine.Internal(r.strategy()).LoadVariables(ctx, r.variables, r.from, readers(), func(ctx context.Context) error {
		checked = true
		return check(ctx)
	})
	if err != nil && !checked {
		err = r.agree(ctx, err)
	}
	return err
}

// inTurn verifies everything and then replaces one variable after another. failed is an earlier
// error.
func (r *restore) inTurn(ctx context.Context, failed error) error {
	if failed == nil {
		failed = r.check(ctx)
	}
	if err := r.agree(ctx, failed); err != nil {
		return err
	}
	for i, v := range r.variables { // all blocks are verified
		if _, err := engine.Internal(r.strategy()).LoadVariables(ctx, r.variables[i:i+1], r.from[i:i+1], readers(), nil); err != nil {
			return faultOf(v.Path(), "not restored", "", err)
		}
	}
	return nil
}

// check verifies this process's share of the files' headers. Unless the options skip it, check also
// verifies the variables that are not read to the devices; for a sharded checkpoint only those that
// are restored. Variables that are read to the devices are verified during that read.
func (r *restore) check(ctx context.Context) error {
	share, of := 0, 1
	if r.shared != nil {
		share, of = r.shared.Process(), r.shared.NumProcesses()
	}
	if r.opts.SkipVerify {
		return r.c.verifyHeaders(ctx, share, of)
	}
	if r.c.sharded == nil {
		return r.c.verify(ctx, r.parts, 0, 1)
	}
	var rest []*source
	for i, p := range r.parts {
		if !r.placed[i] && r.wanted(i) {
			rest = append(rest, p)
		}
	}
	return r.c.verify(ctx, rest, share, of)
}

// wanted reports whether a saved variable is restored.
func (r *restore) wanted(i int) bool {
	return r.targets[i] != nil || r.group.creates(r.c.variables[i].Info)
}

// maxReason limits the text of an error that one process reports to the others, in bytes.
const maxReason = 4 << 10

// agree returns an error on all processes if one of them has an error, before any of them changes a
// variable. The error contains the reason and the number of the process that failed.
func (r *restore) agree(ctx context.Context, mine error) error {
	if r.shared == nil {
		return mine
	}
	reason := ""
	if mine != nil {
		reason = mine.Error()
		reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	}
	all, err := r.shared.GatherBytes(context.WithoutCancel(ctx), "checkpoint: restore", []byte(reason))
	switch {
	case mine != nil:
		return mine
	case err != nil:
		return doing("restore", r.c.path, err)
	}
	for process, reason := range all {
		if len(reason) > 0 {
			return doing("restore", r.c.path, &errkind.Fault{Op: fmt.Sprintf("process %d", process), Reason: string(reason), Class: errkind.DataLossError})
		}
	}
	return nil
}

// others restores the variables that are not restored on the devices, in the order of the save.
func (r *restore) others(ctx context.Context) error {
	for i := range r.c.variables {
		v := &r.c.variables[i]
		if r.placed[i] || !r.wanted(i) {
			continue
		}
		value, err := r.c.tensor(ctx, v)
		if err != nil {
			return err
		}
		if r.targets[i] != nil {
			err = r.targets[i].RestoreValue(ctx, value)
		} else {
			err = r.group.Create(v.Info, value)
		}
		if err != nil {
			return faultOf(v.Path, "not restored", "", err)
		}
	}
	return nil
}
