package sharding_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// The expected device numbers, on meshes of 2 x 2 x 2 and 2 x 1 x 3 devices, were derived by hand.
func TestGroups(t *testing.T) {
	cube, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "model", Size: 2},
		sharding.Axis{Name: "sequence", Size: 2})
	require.NoError(t, err)
	rectangle, err := sharding.NewMesh(sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "one", Size: 1},
		sharding.Axis{Name: "b", Size: 3})
	require.NoError(t, err)
	for _, c := range []struct {
		mesh sharding.Mesh
		axes []string
		want [][]int
	}{
		{cube, nil, [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
		{cube, []string{"replica"}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{cube, []string{"model"}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
		{cube, []string{"sequence"}, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
		{cube, []string{"model", "sequence"}, [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}},
		{cube, []string{"sequence", "model"}, [][]int{{0, 2, 1, 3}, {4, 6, 5, 7}}},
		{cube, []string{"replica", "sequence"}, [][]int{{0, 1, 4, 5}, {2, 3, 6, 7}}},
		{cube, []string{"sequence", "replica"}, [][]int{{0, 4, 1, 5}, {2, 6, 3, 7}}},
		{cube, []string{"replica", "model", "sequence"}, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}},
		{rectangle, []string{"a"}, [][]int{{0, 3}, {1, 4}, {2, 5}}},
		{rectangle, []string{"b"}, [][]int{{0, 1, 2}, {3, 4, 5}}},
		{rectangle, []string{"one"}, [][]int{{0}, {1}, {2}, {3}, {4}, {5}}},
		{rectangle, []string{"b", "one", "a"}, [][]int{{0, 3, 1, 4, 2, 5}}},
		{sharding.Mesh{}, nil, [][]int{{0}}},
	} {
		groups, err := c.mesh.Groups(c.axes...)
		require.NoError(t, err)
		assert.Equal(t, c.want, groups, "%v over %v", c.mesh, c.axes)
	}
	for _, c := range []struct {
		axes    []string
		problem sharding.Problem
	}{{[]string{"expert"}, sharding.UnknownAxis}, {[]string{"model", "model"}, sharding.RepeatedAxis},
		{[]string{""}, sharding.UnknownAxis}} {
		_, err := cube.Groups(c.axes...)
		var bad *sharding.SpecError
		require.True(t, errors.As(err, &bad), "%v", err)
		assert.Equal(t, c.problem, bad.Problem)
	}
}
