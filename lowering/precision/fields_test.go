package precision

import (
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/stretchr/testify/require"
)

func paths(store *model.Store) (all []string) {
	for v := range store.IterVariables() {
		all = append(all, v.Path())
	}
	return all
}

func TestSetDTypeKeepsValue(t *testing.T) {
	v := model.NewStore().VariableWithValue("/w", []float32{1, 2})
	require.NoError(t, setDType(v, dtypes.BFloat16))
	require.Equal(t, shapes.Make(dtypes.BFloat16, 2), v.Shape())
	require.Equal(t, []float32{1, 2}, v.MustValue().Value())
}

func TestHideAndRestore(t *testing.T) {
	store := model.NewStore()
	a, b := store.VariableWithValue("/a", float32(1)), store.VariableWithValue("/b", int32(2))
	l, err := variableListOf(store)
	require.NoError(t, err)
	restore := l.hide(func(v *model.Variable) bool { return v.DType() == dtypes.Float32 })
	require.Equal(t, []string{"/b"}, paths(store))
	require.Nil(t, store.GetVariable("/a"))
	other := store.VariableWithShape("/a", shapes.Make(dtypes.BFloat16), initializer.Zero)
	c := store.VariableWithShape("/c", shapes.Make(dtypes.BFloat16), initializer.Zero)
	require.True(t, slices.Equal([]*model.Variable{other, c}, restore()))
	require.Equal(t, []string{"/a", "/b"}, paths(store))
	require.Same(t, a, store.GetVariable("/a"))
	require.Same(t, b, store.GetVariable("/b"))
	require.Equal(t, float32(1), a.MustValue().Value())
	l.add(c)
	require.Same(t, c, store.GetVariable("/c"))
	require.Equal(t, []string{"/a", "/b", "/c"}, paths(store))
}
