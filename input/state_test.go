package input_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestStatesOfOtherPipelinesAreRefused(t *testing.T) {
	ctx := context.Background()
	all := pipelines(t)
	for name, ds := range all {
		it, err := ds.Open(ctx)
		require.NoError(t, err)
		state, err := it.State()
		require.NoError(t, err)
		require.NoError(t, it.Close())
		for other, target := range all {
			if sameOps(state, target) {
				continue
			}
			_, err := target.OpenAt(ctx, input.Pass{}, state)
			assert.ErrorIs(t, err, input.ErrState, "state of %q in %q", name, other)
		}
	}
}

// sameOps reports whether a state names the operations the dataset has.
func sameOps(state input.State, ds input.Dataset) bool {
	it, err := ds.Open(context.Background())
	if err != nil {
		return false
	}
	defer it.Close()
	own, err := it.State()
	return err == nil && sameShape(state, own)
}

func sameShape(a, b input.State) bool {
	if a.Op != b.Op || len(a.Inputs) != len(b.Inputs) {
		return false
	}
	for i := range a.Inputs {
		if !sameShape(a.Inputs[i], b.Inputs[i]) {
			return false
		}
	}
	return true
}
