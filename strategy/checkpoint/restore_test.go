package checkpoint

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOtherVariablesAreRefusedBeforeAnythingChanges(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, numbers(5), SaveOptions{}))
	c := latest(t, d)
	a := &memory{path: "/a", value: tensors.FromValue([]float32{1, 1, 1})}
	other := &memory{path: "/other", value: tensors.FromScalar(float32(7))}
	err := c.Restore(ctx, Group{}.With(a, other), RestoreOptions{})
	var mismatch *MismatchError
	require.ErrorAs(t, err, &mismatch)
	assert.Equal(t, []string{"/other"}, mismatch.Missing)
	assert.Equal(t, []string{"/deep/b", "/deep/c"}, mismatch.Unexpected)
	require.Equal(t, float32(7), other.value.Value())
	require.Equal(t, []float32{1, 1, 1}, a.value.Value())

	require.ErrorAs(t, c.Restore(ctx, Group{}.With(a), RestoreOptions{AllowMissing: true}), &mismatch)
	require.NoError(t, c.Restore(ctx, Group{}.With(a, other), RestoreOptions{AllowMissing: true, AllowUnexpected: true}))
	require.Equal(t, []float32{5, 5, 5}, a.value.Value())
	require.Equal(t, float32(7), other.value.Value())

	for _, wrong := range []*tensors.Tensor{tensors.FromValue([]float32{1, 1}), tensors.FromValue([]float64{1, 1, 1}),
		tensors.FromValue([][]float32{{1, 1, 1}})} {
		g := numbers(1)
		g.Variables[0] = &memory{path: "/a", value: wrong}
		err := c.Restore(ctx, g, RestoreOptions{})
		require.ErrorIs(t, err, ErrVariable)
		require.ErrorContains(t, err, `variable "/a": `)
		require.Equal(t, float32(1), g.Variables[1].(*memory).value.Value())
	}
	require.ErrorIs(t, c.Restore(ctx, numbers(1).With(a), RestoreOptions{}), ErrVariable, "twice")
	require.Error(t, c.Restore(ctx, Group{Variables: []Variable{nil}}, RestoreOptions{}))
}
