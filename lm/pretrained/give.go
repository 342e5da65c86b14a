package pretrained

import (
	"context"
	"slices"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// machine is what this package uses of a strategy beside the contract.
type machine interface {
	// Turn waits for the turn to use a store whose variables are about to be loaded. done gives it back.
	Turn(ctx context.Context, store *model.Store) (held context.Context, done func(), err error)
	// Fill gives variables values in parts, all of them or none, so many parts at a time, beside what
	// their devices hold. staged is the most that the host held on the way.
	Fill(ctx context.Context, variables []*strategy.Variable, from []lazy.Parts, readers int, check func(ctx context.Context) error) (staged int, err error)
}

var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))

// value is a value for a variable of a store, which has its shape and dtype.
type value struct {
	path  string
	parts lazy.Parts
}

// give gives the variables of a store values: those that a traced step uses on the devices, and all
// others in the store, until the first step that uses them runs. The store gets variables that it
// lacks, as ones that are trained.
func give(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, values []value) (*Report, error) {
	m, r := inside.Of[machine](s), &Report{}
	failed := func(err error) (*Report, error) {
		return nil, &LoadError{Loaded: slices.Concat(r.OnDevices, r.InStore), Err: err}
	}
	ctx, done, err := m.Turn(ctx, store)
	if err != nil {
		return failed(err)
	}
	defer done()
	fill := func(variables []*strategy.Variable, from []lazy.Parts) error {
		staged, err := m.Fill(ctx, variables, from, 1, nil)
		if err != nil {
			return err
		}
		r.StagedBytes = max(r.StagedBytes, staged)
		for _, v := range variables {
			r.OnDevices = append(r.OnDevices, v.Path())
			for _, shard := range v.Shards() {
				if shard.Process == s.Process() {
					r.DeviceBytes += shard.Bytes
				}
			}
		}
		return nil
	}
	var first, later []*strategy.Variable // that wait for their first value, and that have one
	var firstParts, laterParts []lazy.Parts
	var stored []value
	for _, x := range values {
		switch v, traced := s.Variables(store).Lookup(x.path); {
		case !traced:
			stored = append(stored, x)
		case len(v.Shards()) == 0:
			first, firstParts = append(first, v), append(firstParts, x.parts)
		default:
			later, laterParts = append(later, v), append(laterParts, x.parts)
		}
	}
	if err := fill(first, firstParts); err != nil {
		return failed(err)
	}
	for i := range later {
		if err := fill(later[i:i+1], laterParts[i:i+1]); err != nil {
			return failed(err)
		}
	}
	for _, x := range stored {
		if v := store.GetVariable(x.path); v != nil {
			err = v.SetValue(lazy.Whole(x.parts))
		} else {
			_, err = store.CreateVariable(x.path, lazy.Whole(x.parts))
		}
		if err != nil {
			return failed(err)
		}
		r.InStore = append(r.InStore, x.path)
	}
	return r, nil
}
