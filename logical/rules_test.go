package logical_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func ExampleRules() {
	rules := logical.Rules{
		logical.Match(`hidden/.*weights`, logical.SplitInto(1, 2)),
		logical.Match(`output/.*weights`, logical.SplitInto(2, 1)),
	}
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 4}, sharding.Axis{Name: "logical", Size: 2})
	if err != nil {
		panic(err)
	}
	for _, path := range []string{"/hidden/dense/weights", "/AdamOptimizer/hidden/dense/weights_1st_moment",
		"/output/dense/biases"} {
		annotation, _ := rules.AnnotationFor(mesh, path, []int{4, 4})
		fmt.Println(path, annotation)
	}
	// Output:
	// /hidden/dense/weights 1,2
	// /AdamOptimizer/hidden/dense/weights_1st_moment 1,2
	// /output/dense/biases none
}

func TestRulesSkipVariablesOfAnotherRank(t *testing.T) {
	rules := logical.Rules{logical.Match(`hidden`, logical.SplitInto(1, 2)), logical.Match(`hidden`, logical.SplitInto(2))}
	matrix, rule := rules.AnnotationFor(sharding.Mesh{}, "/hidden/weights", []int{4, 4})
	assert.Equal(t, 0, rule)
	assert.True(t, matrix.Equal(logical.SplitInto(1, 2)))
	vector, rule := rules.AnnotationFor(sharding.Mesh{}, "/hidden/biases", []int{4})
	assert.Equal(t, 1, rule)
	assert.True(t, vector.Equal(logical.SplitInto(2)))
	scalar, rule := rules.AnnotationFor(sharding.Mesh{}, "/hidden/scale", nil)
	assert.Equal(t, -1, rule)
	assert.Equal(t, logical.KindNone, scalar.Kind())
}

// AnnotationFor returns the split of Largest in addition to a named split. Package strategy uses For and not
// Place.
func TestLargestExtendsNamedSplits(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 4}, sharding.Axis{Name: "logical", Size: 2})
	require.NoError(t, err)
	everything := regexp.MustCompile("")
	rules := logical.Rules{
		logical.Match(`norm`, logical.Replicated()),
		logical.Match(`up/weights$`, logical.SplitOverAxes("", "logical")),
		{Pattern: everything, Largest: []string{"replica"}, MinElements: 64},
	}
	require.NoError(t, rules.Validate(mesh))
	for _, c := range []struct {
		path string
		dims []int
		want logical.Annotation
		rule int
	}{
		{"/up/weights", []int{16, 8}, logical.SplitOverAxes("replica", "logical"), 1},
		{"/Adam/up/weights_1st_moment", []int{16, 8}, logical.SplitOverAxes("replica", "logical"), 1},
		{"/up/weights", []int{2, 4}, logical.SplitOverAxes("", "logical"), 1},
		{"/other", []int{8, 16}, logical.SplitOverAxes("", "replica"), 2},
		{"/other", []int{7, 11}, logical.Annotation{}, -1},
		{"/norm/scale", []int{128}, logical.Replicated(), 0},
	} {
		a, rule := rules.AnnotationFor(mesh, c.path, c.dims)
		assert.True(t, a.Equal(c.want), "%s %v: %s", c.path, c.dims, a)
		assert.Equal(t, c.rule, rule, c.path)
	}
	err = append(rules, logical.Match("numbers", logical.SplitInto(2, 1))).Validate(mesh)
	assert.ErrorContains(t, err, "Largest cannot be combined with rules that split by number or assign a device")
}

func TestUnreachedSuggestsSimilarNames(t *testing.T) {
	rules := logical.Rules{logical.Match("/up/weights$", logical.SplitInto(1, 2)), logical.Match("/down/",
		logical.SplitInto(2)), logical.Match("/none", logical.SplitInto(2))}
	rules[2].Optional = true
	var reach logical.RuleUsage
	assert.True(t, reach.NoneUsed())
	assert.Equal(t, []int{0, 1}, reach.Unused(rules))
	reach.Record(rules, "/up/weights", []int{4, 4})
	assert.False(t, reach.NoneUsed())
	assert.Equal(t, []int{1}, reach.Unused(rules))
	known := []logical.Variable{{Path: "/down/weights", Shape: shapes.Make(dtypes.Float32, 4, 4)},
		{Path: "/ups", Shape: shapes.Make(dtypes.Float32)}}
	assert.Equal(t, `splits variables of rank 1, but matches only variables of other ranks: "/down/weights" (Float32[4 `+
		`4]); write one entry for each dimension`, rules[1].ExplainUnused(known))
	assert.Contains(t, rules[2].ExplainUnused(known), `matches no variable; the nearest names are "/`)
	large := logical.Rule{Pattern: regexp.MustCompile("down"), Largest: []string{"replica"}}
	assert.Contains(t, large.ExplainUnused(known),
		`matches only variables with fewer elements than MinElements: "/down/weights"`)
}
