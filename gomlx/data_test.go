package gomlx

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestPlaceData(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 4}, sharding.Axis{Name: "logical", Size: 2})
	require.NoError(t, err)
	one, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 1}, sharding.Axis{Name: "logical", Size: 8})
	require.NoError(t, err)
	for _, c := range []struct {
		dims        []int
		spec, whole string
	}{
		{[]int{8, 3}, "replica,-", ""}, {nil, "()", ""},
		{[]int{6}, "-", "dimension 0 of size 6 is not divisible by replica=4"},
		{[]int{0, 2}, "-,-", "dimension 0 of size 0 is not divisible by replica=4"},
	} {
		p := PlaceData(mesh, c.dims)
		assert.Equal(t, c.spec, p.Spec.String())
		assert.Equal(t, c.whole, p.UnsplitReason)
	}
	assert.True(t, PlaceData(one, []int{8}).Spec.IsReplicated())
	assert.True(t, isVariable("/w") && !isVariable("arg0"))
}

func TestRulesOfTheContractAloneAreRefused(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 4}, sharding.Axis{Name: "logical", Size: 2})
	require.NoError(t, err)
	for want, rule := range map[string]logical.Rule{
		"it splits nothing": {Pattern: regexp.MustCompile("w")},
		"a program over the whole batch has no logical device of its own": logical.Match("w", logical.AssignTo(0)),
		"name the axes": logical.Match("w", logical.SplitInto(1, 2)),
	} {
		err := Options{Rules: logical.Rules{rule}, RulesName: "mine"}.validate(mesh)
		var of *logical.RuleError
		require.ErrorAs(t, err, &of, want)
		assert.ErrorContains(t, err, want)
		assert.Equal(t, "mine", of.File)
	}
}
