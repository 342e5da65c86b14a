package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVariablesThatCannotBeSavedAreNamed(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		group Group
		want  string
	}{
		"no form": {Group{Variables: []Variable{&memory{path: "/z", value: tensors.FromScalar(complex128(1))}}}, "/z"},
		"twice":   {numbers(1).With(&memory{path: "/a", value: tensors.FromScalar(float32(1))}), "/a"},
		"no path": {Group{Variables: []Variable{&memory{value: tensors.FromScalar(float32(1))}}}, ""},
		"unreadable": {numbers(1).With(&memory{path: "/bad", value: tensors.FromScalar(float32(1)),
			read: func() error { return broken }}), "/bad"},
	} {
		err := d.Save(ctx, 1, c.group, SaveOptions{})
		require.ErrorIs(t, err, ErrVariable, name)
		assert.ErrorContains(t, err, fmt.Sprintf("variable %q: ", c.want), name)
		steps, err := d.Steps(ctx)
		require.NoError(t, err)
		assert.Empty(t, steps, name)
	}
	require.ErrorContains(t, d.Save(ctx, 1, Group{Variables: []Variable{nil}}, SaveOptions{}), "nil")
	require.ErrorContains(t, d.Save(ctx, 1, numbers(1), SaveOptions{Metadata: map[string]string{metadataStep: "9"}}),
		metadataStep)
	require.ErrorIs(t, d.Save(ctx, 1, numbers(1).With(&memory{path: "/bad", value: tensors.FromScalar(float32(1)),
		read: func() error { return broken }}), SaveOptions{}), broken)
	require.NoError(t, d.Save(ctx, 1, Group{}, SaveOptions{}), "nothing at all is a checkpoint too")
	require.Empty(t, latest(t, d).Variables())
}

// TestAVariableOfTheScopeMayHaveTheNameOfOneOfTheStore saves both, each under its own path.
func TestAVariableOfTheScopeMayHaveTheNameOfOneOfTheStore(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	both := func(x float32) Group { return numbers(x).With(&memory{path: "a", value: tensors.FromScalar(x + 1)}) }
	require.NoError(t, d.Save(ctx, 1, both(1), SaveOptions{}))
	c := latest(t, d)
	g := both(7)
	require.NoError(t, c.Restore(ctx, g, RestoreOptions{}))
	assert.Equal(t, []float32{1, 1, 1}, g.Variables[0].(*memory).value.Value())
	assert.Equal(t, float32(2), g.Variables[3].(*memory).value.Value())
	require.NoError(t, c.Export(ctx, filepath.Join(t.TempDir(), "all.safetensors"), ExportOptions{All: true}))
}
