package pretrained

import (
	"context"
	"slices"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
	"github.com/tpustrategy/tpustrategy/strategy"
)

type variableValue struct {
	path  string
	parts lazytensor.Reader
}

// setVariables sets the values of variables. The value of a variable that a traced step uses is
// copied to the devices. Other values stay in the store until the first step that uses them runs.
// Missing variables are created as trainable variables.
func setVariables(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, values []variableValue) (*Report,
	error) {
	m, r := engine.Internal(s), &Report{}
	failed := func(err error) (*Report, error) {
		return nil, &LoadError{Loaded: slices.Concat(r.OnDevices, r.InStore), Err: err}
	}
	ctx, done, err := m.LockVariables(ctx, store)
	if err != nil {
		return failed(err)
	}
	defer done()
	fill := func(variables []*strategy.Variable, sources []lazytensor.Reader) error {
		staged, err := m.LoadVariables(ctx, variables, sources, 1, nil)
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
	var first, later []*strategy.Variable // without and with a value
	var firstParts, laterParts []lazytensor.Reader
	var stored []variableValue
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
			err = v.SetValue(lazytensor.FromReader(x.parts))
		} else {
			_, err = store.CreateVariable(x.path, lazytensor.FromReader(x.parts))
		}
		if err != nil {
			return failed(err)
		}
		r.InStore = append(r.InStore, x.path)
	}
	return r, nil
}
