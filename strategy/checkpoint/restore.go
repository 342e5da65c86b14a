package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
)

// RestoreOptions says how strict a restore is. The zero value asks for exactly the saved variables,
// and for whole files.
type RestoreOptions struct {
	// AllowMissing leaves a variable unchanged if the checkpoint does not have it.
	AllowMissing bool
	// AllowUnexpected leaves out a saved variable that the group neither has nor creates.
	AllowUnexpected bool
	// SkipVerify does not read the whole checkpoint beforehand. Restore still compares each
	// variable's checksum before it assigns the variable, but after damage in one variable the
	// variables before it have their saved values.
	SkipVerify bool
}

// Restore gives the variables of a group their saved values, as tf.train.Checkpoint.restore does.
// The number of replicas and the splits of the variables may differ from those at the save. A saved
// value for which the group has no variable goes to the group's Create, if there is one. Restore
// works in the order of the group that was saved. A model therefore finds created variables in the
// order in which it made them, and its steps are the same programs as before, which a cache of
// compiled programs has.
//
// Restore checks names, shapes and dtypes of all variables, and the checkpoint's checksums, before
// it changes anything. Variables that are on the devices, as they are after a step was traced, get
// their values beside the old ones, and all at once when everything has been read and compared:
// each process reads the parts that its devices hold, once, and the host holds a sixteenth of them
// at a time. Where the devices have no room for both, each variable is replaced in turn, after a
// first reading of everything. For all other variables Restore holds one in host memory at a time,
// and reads it twice. Missing and unexpected variables are a [*MismatchError], wrong shapes and
// dtypes [ErrVariable]s, and damage is a [*CorruptError].
//
// Where several processes share a strategy, all of them call Restore, and none changes anything if
// one of them finds an error.
func (c *Checkpoint) Restore(ctx context.Context, g Group, opts RestoreOptions) error {
	if c.objects == nil {
		return errNotOpened
	}
	r := &restore{c: c, group: g, opts: opts}
	r.shared = sharedBy(g)
	err := r.plan()
	if err == nil && r.room() {
		err = r.together(ctx)
	} else {
		err = r.inTurn(ctx, err)
	}
	if err != nil {
		return err
	}
	return r.others(ctx)
}

// match finds the variable of each saved one, nil where there is none.
func (c *Checkpoint) match(g Group, opts RestoreOptions) ([]Variable, error) {
	targets := make([]Variable, len(c.variables))
	index := make(map[string]int, len(c.variables))
	for i, v := range c.variables {
		index[v.Path] = i
	}
	known := make(map[string]bool, len(g.Variables))
	mismatch := &MismatchError{}
	var errs []error
	for i, v := range g.Variables {
		if v == nil {
			return nil, nilVariable("restore", i)
		}
		known[v.Path()] = true
		if _, _, err := rules(v); err != nil {
			errs = append(errs, err)
		}
		at, ok := index[v.Path()]
		switch {
		case !ok && !opts.AllowMissing && !saved.IsStateName(v.Path()):
			mismatch.Missing = append(mismatch.Missing, v.Path())
		case !ok:
		case targets[at] != nil:
			errs = append(errs, faultOf(v.Path(), "it is in the group twice", "give each variable a path of its own", nil))
		case !v.Shape().Equal(c.variables[at].Shape):
			errs = append(errs, faultOf(v.Path(), fmt.Sprintf("it is %s, the saved value %s", v.Shape(), c.variables[at].Shape), "restore into a model of the saved shapes, or leave the variable out of the group", nil))
		default:
			targets[at] = v
		}
	}
	for _, v := range c.variables {
		if !known[v.Path] && !g.creates(v.Info) && !opts.AllowUnexpected && !saved.IsStateName(v.Path) {
			mismatch.Unexpected = append(mismatch.Unexpected, v.Path)
		}
	}
	if mismatch.Missing != nil || mismatch.Unexpected != nil {
		errs = append(errs, mismatch)
	}
	return targets, errors.Join(errs...)
}
