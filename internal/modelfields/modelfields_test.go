package modelfields_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/modelfields"
)

func TestOf(t *testing.T) {
	store := model.NewStore()
	called := false
	v := store.VariableWithShape("/w", shapes.Make(dtypes.Float32, 2), func(*graph.Graph, shapes.Shape) *graph.Node {
		called = true
		return nil
	})
	f := modelfields.Initializer(v)
	require.NotNil(t, f, "GoMLX keeps the initializer of a variable elsewhere")
	f(nil, v.Shape())
	assert.True(t, called)
	given := store.VariableWithValue("/given", float32(1))
	assert.Nil(t, modelfields.Initializer(given))
}

func TestTheUsedNamesOfAScopeAreFound(t *testing.T) {
	scope := model.NewStore().RootScope()
	scope.In("a")
	assert.Equal(t, map[string]struct{}{"a": {}}, modelfields.UsedNames(scope))
	delete(modelfields.UsedNames(scope), "a")
	assert.NotPanics(t, func() { scope.In("a") })
}
