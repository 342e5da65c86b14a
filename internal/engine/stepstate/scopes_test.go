package stepstate

import (
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
)

// GoMLX keeps the used names of a scope in a field that is not exported.
func TestTheUsedNamesOfAScopeAreFound(t *testing.T) {
	scope := model.NewStore().RootScope()
	scope.In("a")
	assert.Equal(t, map[string]struct{}{"a": {}}, usedNames(scope))
	delete(usedNames(scope), "a")
	assert.NotPanics(t, func() { scope.In("a") })
}
