package checkpoint

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// restoring is a restore under way.
type restoring struct {
	c      *Checkpoint
	group  Group
	opts   RestoreOptions
	shared *strategy.TPUStrategy // by several processes; nil if there is none

	targets []Variable
	parts   []*savedParts           // of the checkpoint's variables
	loads   []strategy.VariableLoad // what goes to the devices in parts
	loaded  []int                   // their places
}

// sharedBy returns the strategy of a group's variables that several processes share, or nil.
func sharedBy(g Group) *strategy.TPUStrategy {
	for _, v := range g.Variables {
		if of, ok := v.(interface{ Strategy() *strategy.TPUStrategy }); ok && of.Strategy().NumProcesses() > 1 {
			return of.Strategy()
		}
	}
	return nil
}

// inParts returns the variable if its value is one on all replicas, so that each device gets its
// part of what was saved as it is.
func inParts(v Variable) (*strategy.Variable, bool) {
	placed, ok := v.(*strategy.Variable)
	return placed, ok && placed.Synchronization() == strategy.OnWrite && !placed.LocalWrites() && placed.Shape().Size() > 0
}

// plan says which variable gets its value how.
func (r *restoring) plan() (err error) {
	if r.targets, err = r.c.match(r.group, r.opts); err != nil {
		return err
	}
	r.parts = make([]*savedParts, len(r.c.variables))
	for i := range r.c.variables {
		r.parts[i] = r.c.parts(&r.c.variables[i])
	}
	for i := range r.c.variables {
		v, ok := inParts(r.targets[i])
		if !ok || len(r.loads) > 0 && v.Strategy() != r.loads[0].Variable.Strategy() {
			continue
		}
		r.loads, r.loaded = append(r.loads, strategy.VariableLoad{Variable: v, Parts: r.parts[i]}), append(r.loaded, i)
	}
	return nil
}

// room reports whether the devices have room for the new values beside the old ones. A plugin that
// does not say how much room there is has the host's memory.
func (r *restoring) room() bool {
	need := map[int]int64{} // by device
	for _, l := range r.loads {
		for _, shard := range l.Variable.Shards() { // none for one that waits for its first value
			need[shard.Replica*l.Variable.Strategy().NumLogicalDevices()+shard.LogicalDevice] += int64(shard.Bytes)
		}
	}
	most := int64(0)
	for _, n := range need {
		most = max(most, n)
	}
	if most == 0 {
		return true
	}
	free, known := r.loads[0].Variable.Strategy().FreeBytes()
	return !known || free > most
}

// together reads all that goes to the devices to memory beside what they hold, compares everything,
// and lets the new values take the places of the old.
func (r *restoring) together(ctx context.Context) error {
	check := func(ctx context.Context) error { return r.agree(ctx, r.check(ctx)) }
	if len(r.loads) == 0 {
		return check(ctx)
	}
	checked := false
	err := r.loads[0].Variable.Strategy().LoadTogether(ctx, r.loads, func(ctx context.Context) error {
		checked = true
		return check(ctx)
	})
	if err != nil && !checked {
		err = r.agree(ctx, err)
	}
	return err
}

// inTurn compares everything, and then replaces one variable after another. failed is what is wrong
// already.
func (r *restoring) inTurn(ctx context.Context, failed error) error {
	if failed == nil {
		failed = r.check(ctx)
	}
	if err := r.agree(ctx, failed); err != nil {
		return err
	}
	for _, l := range r.loads {
		read := func(context.Context) error { return nil } // each block was compared
		if err := l.Variable.Strategy().LoadTogether(ctx, []strategy.VariableLoad{l}, read); err != nil {
			return &VariableError{Path: l.Variable.Path(), Reason: "not restored", Err: err}
		}
	}
	return nil
}

// check compares what is not read to the devices with the checksums, unless the options say
// otherwise; what is read is compared on the way. Of shards that is what this process reads.
func (r *restoring) check(ctx context.Context) error {
	if r.opts.SkipVerify {
		return nil
	}
	if r.c.sharded == nil {
		return r.c.verify(ctx, r.parts)
	}
	var rest []*savedParts
	for i, p := range r.parts {
		if _, ok := inParts(r.targets[i]); !ok && r.wanted(i) {
			rest = append(rest, p)
		}
	}
	return r.c.verify(ctx, rest)
}

// wanted reports whether a saved variable is restored.
func (r *restoring) wanted(i int) bool {
	return r.targets[i] != nil || r.group.creates(r.c.variables[i].Info)
}

// errElsewhere is the error of a process whose own part of a restore is well.
var errElsewhere = errkind.New(errkind.DataLossError, "another process cannot restore the checkpoint; see its error")

// agree lets the processes agree that nothing is wrong, before any of them changes a variable.
func (r *restoring) agree(ctx context.Context, mine error) error {
	if r.shared == nil {
		return mine
	}
	any, err := r.shared.AnyProcess(context.WithoutCancel(ctx), mine != nil)
	switch {
	case mine != nil:
		return mine
	case err != nil:
		return doing("restore", r.c.path, err)
	case any:
		return doing("restore", r.c.path, errElsewhere)
	}
	return nil
}

// others restores what does not go to the devices in parts, in the order of the save.
func (r *restoring) others(ctx context.Context) error {
	done := map[int]bool{}
	for _, i := range r.loaded {
		done[i] = true
	}
	for i := range r.c.variables {
		v := &r.c.variables[i]
		if done[i] || !r.wanted(i) {
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
			return &VariableError{Path: v.Path, Reason: "not restored", Err: err}
		}
	}
	return nil
}
