package logical_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func ExampleSplitOverAxes() {
	mesh, err := logical.NewMesh(8, sharding.Axis{Name: "model", Size: 4}, sharding.Axis{Name: "sequence", Size: 2})
	fmt.Println(mesh, err)
	columns := logical.SplitOverAxes("", "model")
	fmt.Println(columns, columns.PartsOn(mesh), columns.ValidateOn(mesh, "weights", []int{64, 30}))
	// A split by number can divide axes.
	factors, _ := logical.FactorAxes(mesh, columns, logical.SplitInto(2, 4))
	fmt.Println(factors.Axes(), columns.Spec(2, factors), logical.SplitInto(2, 4).Spec(2, factors))
	// Output:
	// model=4,sequence=2 <nil>
	// -,model [1 4] logical: split "weights" of shape [64 30]: dimension 1 of size 30 is not divisible into 4 parts (model=4); pad the dimension to 32 or split another one
	// [{model.0 2} {model.1 2} {sequence 2}] -,model.0+model.1 model.0,model.1+sequence
}

// newMesh returns a mesh of logical devices. namesAndSizes alternates axis names and sizes.
func newMesh(t *testing.T, devices int, namesAndSizes ...any) sharding.Mesh {
	t.Helper()
	var list []sharding.Axis
	for i := 0; i < len(namesAndSizes); i += 2 {
		list = append(list, sharding.Axis{Name: namesAndSizes[i].(string), Size: namesAndSizes[i+1].(int)})
	}
	mesh, err := logical.NewMesh(devices, list...)
	require.NoError(t, err)
	return mesh
}

func TestMeshRejectsInvalidAxes(t *testing.T) {
	for _, c := range []struct {
		devices int
		axes    []sharding.Axis
		want    string
	}{
		{4, []sharding.Axis{{Name: "model", Size: 2}, {Name: "sequence", Size: 4}},
			"the axes model=2,sequence=4 have 8 devices, but a replica has 4; the product of the axis sizes must be"},
		{4, []sharding.Axis{{Name: "", Size: 4}}, "the name is empty"},
		{4, []sharding.Axis{{Name: "m", Size: 2}, {Name: "m", Size: 2}}, `mesh axis "m": the name is used twice`},
		{4, []sharding.Axis{{Name: "replica", Size: 4}}, `axis name "replica" is reserved for the replicas`},
		{4, []sharding.Axis{{Name: "logical.0", Size: 4}}, "has a dot in its name"},
		{4, []sharding.Axis{{Name: "m,n", Size: 4}}, `contains ','`},
		{0, []sharding.Axis{{Name: "m", Size: 0}}, "its size is 0; the size must be at least 1"},
		{0, []sharding.Axis{{Name: "m", Size: -2}, {Name: "n", Size: -2}}, "its size is -2"},
		{0, []sharding.Axis{{Name: "m", Size: 1 << 20}, {Name: "n", Size: 1 << 20}}, "has more than"},
	} {
		_, err := logical.NewMesh(c.devices, c.axes...)
		var bad *logical.Error
		require.True(t, errors.As(err, &bad), "%v: %v", c.axes, err)
		assert.Equal(t, "axes", bad.Op)
		assert.ErrorContains(t, err, c.want)
	}
	assert.Equal(t, "logical=6", newMesh(t, 6).String())
	assert.Equal(t, "logical=1", newMesh(t, 0).String())
	assert.Equal(t, "model=2,expert=1", newMesh(t, 0, "model", 2, "expert", 1).String())
}

func TestValidateOnRejectsInvalidNamedSplits(t *testing.T) {
	mesh := newMesh(t, 8, "model", 2, "sequence", 2, "expert", 2)
	for _, c := range []struct {
		over  []string
		shape []int
		dim   int
		want  string
	}{
		{[]string{"model"}, []int{4, 4}, -1,
			`"model" has 1 entries for 2 dimensions; write 2 entries, with - for a dimension`},
		{[]string{"model", "modle"}, []int{4, 4}, 1,
			`dimension 1 is split over axis "modle", which the replica does not have; use one of model=2,sequence=2,expert=2`},
		{[]string{"model", "model"}, []int{4, 4}, 1, `axis "model" splits dimension 0 and dimension 1; use each axis once`},
		{[]string{"", "model,model"}, []int{4, 4}, 1, `dimension 1 is split over axis "model" twice`},
		{[]string{"model,,expert", ""}, []int{4, 4}, 0, "dimension 0 has an empty axis name"},
		{[]string{"model,", ""}, []int{4, 4}, 0, "dimension 0 has an empty axis name"},
		{[]string{"replica", ""}, []int{4, 4}, 0,
			"dimension 0 is split over the replicas; use axes of the replica (model=2,sequence=2,expert=2); only rules"},
		{[]string{"", "sequence, expert"}, []int{4, 6}, 1,
			"dimension 1 of size 6 is not divisible into 4 parts (sequence=2, expert=2); pad the dimension to 8"},
	} {
		err := logical.SplitOverAxes(c.over...).ValidateOn(mesh, "w", c.shape)
		var bad *logical.Error
		require.True(t, errors.As(err, &bad), "%v: %v", c.over, err)
		assert.Equal(t, []any{"split", "w", c.dim, 8}, []any{bad.Op, bad.Tensor, bad.Dim, bad.Devices})
		assert.ErrorContains(t, err, c.want)
	}
	for _, c := range []struct {
		over  []string
		shape []int
	}{{nil, nil}, {[]string{"", ""}, []int{3, 5}}, {[]string{"model"}, []int{0}}, {[]string{" model , expert "}, []int{4}},
		{[]string{"sequence,model", "expert"}, []int{4, 2}}} {
		assert.NoError(t, logical.SplitOverAxes(c.over...).ValidateOn(mesh, "", c.shape), "%v", c.over)
	}
	assert.NoError(t, logical.SplitOverAxes("logical").ValidateOn(newMesh(t, 3), "", []int{6}),
		"the default mesh has one axis")
	assert.Error(t, logical.SplitOverAxes("model").ValidateOn(newMesh(t, 3), "", []int{6}))
}

func TestReplicaAxisIsValidOnlyOnMeshWithReplicas(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 4}, sharding.Axis{Name: "model", Size: 2})
	require.NoError(t, err)
	a := logical.SplitOverAxes("replica,model", "")
	assert.NoError(t, a.ValidateOn(mesh, "", []int{16, 3}))
	assert.Error(t, a.ValidateOn(mesh, "", []int{4, 3}))
	assert.Error(t, a.ValidateOn(newMesh(t, 2, "model", 2), "", []int{16, 3}))
	assert.Equal(t, 0, a.ReplicaDim())
	assert.Equal(t, -1, logical.SplitInto(2).ReplicaDim())
	within := a.WithinReplica()
	assert.Equal(t, "model,-", within.String())
	assert.Equal(t, -1, within.ReplicaDim())
	assert.Equal(t, "replica+model,-", a.String(), "the annotation is immutable")
	factors, err := logical.FactorAxes(newMesh(t, 2, "model", 2), a)
	require.NoError(t, err)
	assert.Equal(t, "replica+model,-", a.Spec(2, factors).String())
}

func TestPartsAndSpecOfNamedSplits(t *testing.T) {
	mesh := newMesh(t, 12, "model", 2, "one", 1, "sequence", 6)
	for _, c := range []struct {
		a       logical.Annotation
		parts   []int
		divides bool
		spec    string
	}{
		{logical.SplitOverAxes("model", ""), []int{2, 1}, true, "model,-"},
		{logical.SplitOverAxes("", "sequence,model"), []int{1, 12}, true, "-,sequence.0+sequence.1+model"},
		{logical.SplitOverAxes("one", ""), []int{1, 1}, false, "one,-"},
		{logical.SplitOverAxes("", ""), []int{1, 1}, false, "-,-"},
		{logical.SplitInto(4, 3), []int{4, 3}, true, "model+sequence.0,sequence.1"},
		{logical.Replicated(), nil, false, "-,-"},
		{logical.AssignTo(3), nil, false, "-,-"},
		{logical.Annotation{}, nil, false, "-,-"},
	} {
		factors, err := logical.FactorAxes(mesh, logical.SplitInto(4, 3), c.a)
		require.NoError(t, err)
		assert.Equal(t, c.parts, c.a.PartsOn(mesh), "%s", c.a)
		assert.Equal(t, c.divides, c.a.IsSharded(mesh), "%s", c.a)
		assert.Equal(t, c.spec, c.a.Spec(2, factors).String(), "%s", c.a)
	}
}

func TestCutFactorsAxesForSplitsByNumber(t *testing.T) {
	mesh := newMesh(t, 8, "model", 2, "sequence", 4)
	for _, c := range []struct {
		splits []logical.Annotation
		want   []string
	}{
		{nil, []string{"model", "sequence"}},
		{[]logical.Annotation{logical.SplitInto(2, 4), logical.SplitInto(8)}, []string{"model", "sequence"}},
		{[]logical.Annotation{logical.SplitInto(4, 2)}, []string{"model", "sequence.0", "sequence.1"}},
		{[]logical.Annotation{logical.SplitInto(3), logical.SplitInto(0, 8), logical.SplitInto(-2, -4)},
			[]string{"model", "sequence"}},
	} {
		factors, err := logical.FactorAxes(mesh, c.splits...)
		require.NoError(t, err)
		assert.Equal(t, c.want, factors.Names(), "%v", c.splits)
		assert.Equal(t, len(c.want), factors.NumSplit())
	}
	factors, err := logical.FactorAxes(mesh, logical.SplitInto(4, 2))
	require.NoError(t, err)
	assert.Equal(t, []string{"sequence.0", "sequence.1", "replica", "model"}, factors.FactorsOf("sequence", "replica",
		"model"))
	_, err = logical.FactorAxes(newMesh(t, 6, "model", 2, "sequence", 3), logical.SplitInto(3, 2))
	var bad *logical.Error
	require.True(t, errors.As(err, &bad), "%v", err)
	assert.ErrorContains(t, err,
		"the logical axes model=2,sequence=3 and the splits of the step divide the 6 logical devices into both 2 and 3 "+
			"groups")
	one, err := logical.FactorAxes(newMesh(t, 2, "expert", 1, "model", 2), logical.SplitInto(2))
	require.NoError(t, err)
	assert.Equal(t, 1, one.NumSplit())
	assert.Equal(t, "model", logical.SplitInto(2).Spec(1, one).String())
}

func TestAlike(t *testing.T) {
	mesh := newMesh(t, 8, "model", 4, "one", 1, "sequence", 2)
	for _, c := range []struct {
		a, b  logical.Annotation
		alike bool
	}{
		{logical.SplitOverAxes("model", "sequence"), logical.SplitInto(4, 2), true},
		{logical.SplitOverAxes("sequence", "model"), logical.SplitInto(2, 4), false},
		{logical.SplitOverAxes("model,sequence"), logical.SplitInto(8), true},
		{logical.SplitOverAxes("sequence,model"), logical.SplitInto(8), false},
		{logical.SplitOverAxes("model,one", ""), logical.SplitOverAxes("model", "one"), true},
		{logical.SplitOverAxes("model", ""), logical.SplitOverAxes("", "model"), false},
		{logical.SplitOverAxes("one", ""), logical.Replicated(), true},
		{logical.SplitOverAxes("", ""), logical.Annotation{}, true},
		{logical.AssignTo(2), logical.Replicated(), true},
		{logical.SplitOverAxes("model", ""), logical.Replicated(), false},
		{logical.SplitOverAxes("model", ""), logical.SplitInto(4, 2), false},
		{logical.SplitInto(8, 1), logical.SplitInto(1, 8), false},
		{logical.SplitInto(8), logical.SplitInto(8, 1), false},
	} {
		assert.Equal(t, c.alike, c.a.SamePlacement(c.b, mesh), "%s and %s", c.a, c.b)
		assert.Equal(t, c.alike, c.b.SamePlacement(c.a, mesh), "%s and %s", c.b, c.a)
	}
	six := newMesh(t, 6)
	assert.False(t, logical.SplitInto(2, 3).SamePlacement(logical.SplitInto(3, 2), six))
}

func TestRulesWithNamedSplits(t *testing.T) {
	rules := logical.Rules{logical.Match("w", logical.SplitOverAxes("", "model")),
		logical.Match("w", logical.SplitOverAxes("model"))}
	a, rule := rules.AnnotationFor(sharding.Mesh{}, "/w", []int{4, 4})
	assert.Equal(t, 0, rule)
	assert.True(t, a.Equal(logical.SplitOverAxes("", " model ")))
	_, rule = rules.AnnotationFor(sharding.Mesh{}, "/w", []int{4})
	assert.Equal(t, 1, rule)
	_, rule = rules.AnnotationFor(sharding.Mesh{}, "/w", []int{4, 4, 4})
	assert.Equal(t, -1, rule)
	assert.False(t, logical.SplitOverAxes("").Equal(logical.SplitInto(1)))
	assert.False(t, logical.SplitOverAxes().Equal(logical.SplitInto()))
	assert.Equal(t, [][]string{nil, {"model", "expert"}}, logical.SplitOverAxes("", "model,expert").Axes())
	assert.Nil(t, logical.SplitInto(2).Axes())
	assert.Nil(t, logical.SplitOverAxes("model").Parts())
}

func TestSlice(t *testing.T) {
	for _, c := range []struct{ of, want logical.Annotation }{
		{logical.SplitInto(1, 1, 2), logical.SplitInto(1, 2)},
		{logical.SplitInto(2, 1), logical.Annotation{}},
		{logical.SplitOverAxes("", "model"), logical.SplitOverAxes("model")},
		{logical.SplitOverAxes("model", ""), logical.Annotation{}},
		{logical.SplitInto(), logical.Annotation{}},
		{logical.Replicated(), logical.Replicated()},
		{logical.AssignTo(1), logical.AssignTo(1)},
	} {
		assert.True(t, c.want.Equal(c.of.WithoutLeadingDim()), "%s: %s", c.of, c.of.WithoutLeadingDim())
	}
}
