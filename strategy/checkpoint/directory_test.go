package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSavesAreListedOpenedAndTakeTurns(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	_, err := d.Latest()
	require.ErrorIs(t, err, ErrNone)
	for _, step := range []int64{0, 9, 10, 12345678901} {
		require.NoError(t, d.Save(ctx, step, numbers(float32(step%97)), SaveOptions{Metadata: map[string]string{"input": `{"op":"steps"}`}}))
	}
	steps, err := d.Steps()
	require.NoError(t, err)
	require.Equal(t, []int64{0, 9, 10, 12345678901}, steps)
	c := latest(t, d)
	require.Equal(t, int64(12345678901), c.Step())
	require.Equal(t, map[string]string{"input": `{"op":"steps"}`}, c.Metadata())
	requireNumbers(t, c, float32(12345678901%97))
	nine, err := d.Open(9)
	require.NoError(t, err)
	defer nine.Close()
	requireNumbers(t, nine, 9)
	_, err = d.Open(11)
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(d.Path())
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, "OpenDirectory")
	_, err = Open(filepath.Join(d.Path(), "elsewhere"))
	require.ErrorIs(t, err, ErrNone)

	for _, step := range []int64{0, 11, 12345678901} {
		require.ErrorIs(t, d.Save(ctx, step, numbers(1), SaveOptions{}), ErrStep)
	}
	require.Error(t, d.Save(ctx, -1, numbers(1), SaveOptions{}))
	require.NoError(t, d.RemoveAfter(9))
	require.NoError(t, d.Save(ctx, 11, numbers(1), SaveOptions{}))
	require.Equal(t, []string{lockFile, "step-0000000000", "step-0000000009", "step-0000000011"}, names(t, d.Path()))
}

func TestKeepLeavesTheNewest(t *testing.T) {
	d := newDirectory(t, Options{Keep: 2})
	for step := range int64(5) {
		require.NoError(t, d.Save(context.Background(), step, numbers(float32(step)), SaveOptions{}))
	}
	require.Equal(t, []string{lockFile, "step-0000000003", "step-0000000004"}, names(t, d.Path()))
	requireNumbers(t, latest(t, d), 4)
	_, err := OpenDirectory(d.Path(), Options{Keep: -1})
	require.ErrorContains(t, err, "Keep")
}

func TestAForeignEntryIsNoCheckpoint(t *testing.T) {
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(context.Background(), 3, numbers(3), SaveOptions{}))
	for _, name := range []string{"step-9", "step-00000000009", "step-", "step--000000001", "step-99999999999999999999", "other"} {
		require.NoError(t, os.Mkdir(filepath.Join(d.Path(), name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Path(), "step-0000000007"), nil, 0o644))
	steps, err := d.Steps()
	require.NoError(t, err)
	require.Equal(t, []int64{3}, steps)
}

func TestOneProcessSavesAtATime(t *testing.T) {
	d := newDirectory(t, Options{})
	locked, err := lock(d.Path())
	require.NoError(t, err)
	require.ErrorIs(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{}), ErrBusy)
	require.NoError(t, locked.Close())
	require.NoError(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{}))
}

func TestAllDtypesComeBack(t *testing.T) {
	ctx := context.Background()
	values := []*tensors.Tensor{
		tensors.FromValue([]bool{true, false, true}), tensors.FromValue([]int8{-1, 2}), tensors.FromValue([]int16{-300}),
		tensors.FromValue([][]int32{{-70000}, {2}}), tensors.FromScalar(int64(-1 << 62)), tensors.FromValue([]uint8{255}),
		tensors.FromValue([]uint16{65535}), tensors.FromValue([]uint32{1 << 31}), tensors.FromScalar(uint64(1 << 63)),
		tensors.FromValue([]float16.Float16{float16.FromFloat32(1.5)}), tensors.FromValue([]bfloat16.BFloat16{bfloat16.FromFloat32(-2)}),
		tensors.FromValue([]float32{1, 2, 3}), tensors.FromValue([]float64{-0.1}), tensors.FromValue([]complex64{1 + 2i}),
		tensors.FromShape(shapes.Make(dtypes.Float32, 2, 0)),
	}
	var saved, restored Group
	for i, v := range values {
		path := "/" + string(rune('a'+i))
		saved = saved.With(&memory{path: path, value: v})
		restored = restored.With(&memory{path: path, value: tensors.FromShape(v.Shape())})
	}
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(ctx, 1, saved, SaveOptions{}))
	c := latest(t, d)
	require.NoError(t, c.Verify(ctx))
	require.NoError(t, c.Restore(ctx, restored, RestoreOptions{}))
	for i, v := range restored.Variables {
		require.True(t, values[i].Shape().Equal(v.Shape()))
		require.Equal(t, values[i].Value(), v.(*memory).value.Value())
	}
}

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

func TestOtherVariablesAreRefusedBeforeAnythingChanges(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(ctx, 1, numbers(5), SaveOptions{}))
	c := latest(t, d)
	a := &memory{path: "/a", value: tensors.FromValue([]float32{1, 1, 1})}
	other := &memory{path: "/other", value: tensors.FromScalar(float32(7))}
	err := c.Restore(ctx, Group{}.With(a, other), RestoreOptions{})
	var mismatch *MismatchError
	require.ErrorAs(t, err, &mismatch)
	assert.Equal(t, []string{"/other"}, mismatch.Missing)
	assert.Equal(t, []string{"/deep/c", "/deep/b"}, mismatch.Unexpected)
	require.Equal(t, float32(7), other.value.Value())
	require.Equal(t, []float32{1, 1, 1}, a.value.Value())

	require.ErrorAs(t, c.Restore(ctx, Group{}.With(a), RestoreOptions{AllowMissing: true}), &mismatch)
	require.NoError(t, c.Restore(ctx, Group{}.With(a, other), RestoreOptions{AllowMissing: true, AllowUnexpected: true}))
	require.Equal(t, []float32{5, 5, 5}, a.value.Value())
	require.Equal(t, float32(7), other.value.Value())

	var variable *VariableError
	for _, wrong := range []*tensors.Tensor{tensors.FromValue([]float32{1, 1}), tensors.FromValue([]float64{1, 1, 1}), tensors.FromValue([][]float32{{1, 1, 1}})} {
		g := numbers(1)
		g.Variables[0] = &memory{path: "/a", value: wrong}
		require.ErrorAs(t, c.Restore(ctx, g, RestoreOptions{}), &variable)
		require.Equal(t, "/a", variable.Path)
		require.Equal(t, float32(1), g.Variables[1].(*memory).value.Value())
	}
	require.ErrorAs(t, c.Restore(ctx, numbers(1).With(a), RestoreOptions{}), &variable, "twice")
	require.Error(t, c.Restore(ctx, Group{Variables: []Variable{nil}}, RestoreOptions{}))
}

func TestCancelledWorkLeavesNothing(t *testing.T) {
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{}))
	ctx, cancel := context.WithCancel(context.Background())
	g := numbers(2)
	g.Variables[1].(*memory).read = func() error { cancel(); return nil }
	require.ErrorIs(t, d.Save(ctx, 2, g, SaveOptions{}), context.Canceled)
	require.Equal(t, []string{lockFile, "step-0000000001"}, names(t, d.Path()))
	c := latest(t, d)
	require.ErrorIs(t, c.Verify(ctx), context.Canceled)
	require.ErrorIs(t, c.Restore(ctx, numbers(0), RestoreOptions{}), context.Canceled)
	require.ErrorIs(t, c.Restore(ctx, numbers(0), RestoreOptions{SkipVerify: true}), context.Canceled)
}

func TestAClosedCheckpointSaysSo(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	c, err := d.Latest()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Verify(ctx), ErrClosed)
	require.ErrorIs(t, c.Restore(ctx, numbers(1), RestoreOptions{SkipVerify: true}), ErrClosed)
	_, err = c.Tensor(ctx, "/a")
	require.ErrorIs(t, err, ErrClosed)
}
