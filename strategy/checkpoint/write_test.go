package checkpoint

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVariablesThatCannotBeSavedAreNamed(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		group Group
		want  string
	}{
		"no form":    {Group{Variables: []Variable{&memory{path: "/z", value: tensors.FromScalar(complex128(1))}}}, "/z"},
		"twice":      {numbers(1).With(&memory{path: "/a", value: tensors.FromScalar(float32(1))}), "/a"},
		"same name":  {numbers(1).With(&memory{path: "a", value: tensors.FromScalar(float32(1))}), "a"},
		"no path":    {Group{Variables: []Variable{&memory{value: tensors.FromScalar(float32(1))}}}, ""},
		"unreadable": {numbers(1).With(&memory{path: "/bad", value: tensors.FromScalar(float32(1)), read: func() error { return broken }}), "/bad"},
	} {
		var variable *VariableError
		err := d.Save(ctx, 1, c.group, SaveOptions{})
		require.ErrorAs(t, err, &variable, name)
		assert.Equal(t, c.want, variable.Path, name)
		assert.Subset(t, []string{lockFile}, names(t, d.Path()), name)
	}
	require.ErrorContains(t, d.Save(ctx, 1, Group{Variables: []Variable{nil}}, SaveOptions{}), "nil")
	require.ErrorContains(t, d.Save(ctx, 1, numbers(1), SaveOptions{Metadata: map[string]string{metadataStep: "9"}}), metadataStep)
	require.ErrorIs(t, d.Save(ctx, 1, numbers(1).With(&memory{path: "/bad", value: tensors.FromScalar(float32(1)), read: func() error { return broken }}), SaveOptions{}), broken)
	require.NoError(t, d.Save(ctx, 1, Group{}, SaveOptions{}), "nothing at all is a checkpoint too")
	require.Empty(t, latest(t, d).Variables())
}
