package logical_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/logical"
)

func ExampleRules() {
	rules := logical.Rules{
		logical.Match(`hidden/.*weights`, logical.SplitInto(1, 2)),
		logical.Match(`output/.*weights`, logical.SplitInto(2, 1)),
	}
	for _, path := range []string{"/hidden/dense/weights", "/AdamOptimizer/hidden/dense/weights_1st_moment", "/output/dense/biases"} {
		annotation, _ := rules.For(path, 2)
		fmt.Println(path, annotation)
	}
	// Output:
	// /hidden/dense/weights split(1, 2)
	// /AdamOptimizer/hidden/dense/weights_1st_moment split(1, 2)
	// /output/dense/biases none
}

func TestRulesPassOverVariablesOfAnotherRank(t *testing.T) {
	rules := logical.Rules{logical.Match(`hidden`, logical.SplitInto(1, 2)), logical.Match(`hidden`, logical.SplitInto(2))}
	matrix, rule := rules.For("/hidden/weights", 2)
	assert.Equal(t, 0, rule)
	assert.True(t, matrix.Equal(logical.SplitInto(1, 2)))
	vector, rule := rules.For("/hidden/biases", 1)
	assert.Equal(t, 1, rule)
	assert.True(t, vector.Equal(logical.SplitInto(2)))
	scalar, rule := rules.For("/hidden/scale", 0)
	assert.Equal(t, -1, rule)
	assert.Equal(t, logical.None, scalar.Kind())
}
