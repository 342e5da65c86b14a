package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestSpecValidateReportsEveryProblem(t *testing.T) {
	m := mesh2x4(t)
	err := sharding.P("model", "replica", []string{"replica", "logical"}).ValidateTensor(m, "weights", []int{4, 3, 9, 5})
	var got []sharding.SpecError
	for _, e := range sharding.SpecErrors(err) {
		got = append(got, sharding.SpecError{Problem: e.Problem, Tensor: e.Tensor, Dim: e.Dim, DimSize: e.DimSize,
			Axis: e.Axis, AxisSize: e.AxisSize})
		assert.NotEmpty(t, e.Hint)
	}
	assert.Equal(t, []sharding.SpecError{
		{Problem: sharding.UnknownAxis, Tensor: "weights", Dim: 0, Axis: "model"},
		{Problem: sharding.RepeatedAxis, Tensor: "weights", Dim: 2, Axis: "replica", AxisSize: 2},
		{Problem: sharding.RankMismatch, Tensor: "weights", Dim: -1},
		{Problem: sharding.Indivisible, Tensor: "weights", Dim: 1, DimSize: 3, Axis: "replica", AxisSize: 2},
		{Problem: sharding.Indivisible, Tensor: "weights", Dim: 2, DimSize: 9, Axis: "replica, logical", AxisSize: 8},
	}, got)
	var one *sharding.SpecError
	require.ErrorAs(t, err, &one)
	assert.Equal(t,
		`sharding: tensor "weights": dimension 0: the mesh has no axis "model"; the axes are replica=2,logical=4`,
		one.Error())
}

func TestSpecValidateSuggestsCorrection(t *testing.T) {
	m := mesh2x4(t)
	tests := map[string]struct {
		spec  sharding.Spec
		shape []int
		want  string
	}{
		"indivisible": {sharding.P("logical"), []int{6},
			"sharding: dimension 0: size 6 is not divisible by 4 (axes logical); pad the dimension to 8, or do not split " +
				"it (-)"},
		"short": {sharding.P("logical"), []int{8, 2},
			`sharding: rank mismatch; "logical" has rank 1, but the tensor's shape [8 2] has rank 2; write logical,-`},
		"long": {sharding.P("logical", nil), []int{8},
			`sharding: rank mismatch; "logical,-" has rank 2, but the tensor's shape [8] has rank 1; write logical`},
		"negative": {sharding.P(nil), []int{-1}, "sharding: dimension 0: size -1 is negative; pass the static size"},
		"bad part": {sharding.P(7), []int{8},
			"sharding: dimension 0: invalid entry; an entry is nil, a string, a []string or a sharding.Dim, not int"},
		"replicated": {sharding.P("logical").WithReplicated("logical"), []int{8},
			`sharding: axis "logical" is used more than once; use each axis only once in a spec`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.EqualError(t, test.spec.Validate(m, test.shape), test.want)
		})
	}
	assert.NoError(t, sharding.P("logical", nil).Validate(m, []int{0, 3}))
	assert.Error(t, sharding.P(7).Err())
	assert.NoError(t, sharding.P(nil).Err())
}
