package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
)

// RestoreOptions configure a restore. The zero value requires that group and checkpoint have the
// same variables, and verifies the checkpoint first.
type RestoreOptions struct {
	// AllowMissing leaves a variable unchanged if the checkpoint does not have it.
	AllowMissing bool
	// AllowUnexpected ignores a saved variable that the group neither has nor creates.
	AllowUnexpected bool
	// SkipVerify does not read the whole checkpoint before the restore. Restore still verifies each
	// variable's checksum before it assigns the variable. If a variable is damaged, however,
	// variables that were restored before it keep their saved values.
	SkipVerify bool
}

// Restore assigns the saved values to the variables of a group, like tf.train.Checkpoint.restore.
// The number of replicas and the sharding of the variables may differ from those at the save. If a
// saved value has no variable, Restore calls the group's Create, if it is set. Restore works in the
// order of the saved group. A model therefore finds the created variables in the order in which it
// created them, so its steps are the same programs as before and a cache of compiled programs
// applies.
//
// Restore checks the names, shapes and dtypes of all variables, and the checkpoint's checksums,
// before it changes any variable. Variables that are on the devices (after a step was traced) keep
// their old values until all new values have been read and verified, and are then replaced
// together. Each process reads the shards of its devices once and stages at most a sixteenth of
// them in host memory. If the devices do not have enough memory for the old and the new values
// together, Restore first reads and verifies the complete checkpoint and then replaces one variable
// after another. All other variables are read twice, into host memory and one at a time.
//
// Restore returns a [*MismatchError] for missing and unexpected variables, an error that matches
// [ErrVariable] for a different shape or dtype, and a [*CorruptError] for damage. If several
// processes share a strategy, all must call Restore, and none changes a variable if one of them
// finds an error.
func (c *Checkpoint) Restore(ctx context.Context, g Group, opts RestoreOptions) error {
	if c.objects == nil {
		return errNotOpened
	}
	r := &restoration{checkpoint: c, group: g, opts: opts}
	r.sharedStrategy = multiProcessStrategy(g)
	err := r.selectVariables()
	if err == nil && r.hasDeviceMemory() {
		err = r.restoreTogether(ctx)
	} else {
		err = r.restoreOneByOne(ctx, err)
	}
	if err != nil {
		return err
	}
	return r.restoreOnHost(ctx)
}

// matchVariables returns, for each saved variable, the variable of the group to which it is
// restored, or nil if there is none.
func (c *Checkpoint) matchVariables(g Group, opts RestoreOptions) ([]Variable, error) {
	targets := make([]Variable, len(c.variables))
	index := make(map[string]int, len(c.variables))
	for i, v := range c.variables {
		index[v.Path] = i
	}
	inGroup := make(map[string]bool, len(g.Variables))
	mismatch := &MismatchError{}
	var errs []error
	for i, v := range g.Variables {
		if v == nil {
			return nil, nilVariableError("restore", i)
		}
		inGroup[v.Path()] = true
		if _, _, err := combineRules(v); err != nil {
			errs = append(errs, err)
		}
		at, ok := index[v.Path()]
		switch {
		case !ok && !opts.AllowMissing && !savedstep.IsMetricStateName(v.Path()):
			mismatch.Missing = append(mismatch.Missing, v.Path())
		case !ok:
		case targets[at] != nil:
			errs = append(errs, variableError(v.Path(), "it is in the group twice", "give each variable its own path", nil))
		case !v.Shape().Equal(c.variables[at].Shape):
			errs = append(errs, variableError(v.Path(), fmt.Sprintf("it is %s, the saved value %s", v.Shape(),
				c.variables[at].Shape), "restore into a model of the saved shapes, or leave the variable out of the group", nil))
		default:
			targets[at] = v
		}
	}
	for _, v := range c.variables {
		if !inGroup[v.Path] && !g.createsVariable(v.Info) && !opts.AllowUnexpected && !savedstep.IsMetricStateName(v.Path) {
			mismatch.Unexpected = append(mismatch.Unexpected, v.Path)
		}
	}
	if mismatch.Missing != nil || mismatch.Unexpected != nil {
		errs = append(errs, mismatch)
	}
	return targets, errors.Join(errs...)
}
