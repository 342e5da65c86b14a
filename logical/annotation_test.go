package logical_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func ExampleAnnotation_Validate() {
	err := logical.SplitInto(1, 4).Validate("embedding", []int{1000, 30}, 4)
	fmt.Println(err)
	// Output:
	// logical: split "embedding" of shape [1000 30]: dimension 1 of size 30 is not divisible into 4 parts; pad the dimension to 32 or split another one
}

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

func ExampleFactorize() {
	factors, err := logical.Factorize(8, logical.SplitInto(2, 4), logical.SplitInto(1, 8))
	fmt.Println(factors, factors.Names(), err)
	fmt.Println(logical.SplitInto(1, 8).Spec(2, factors))
	_, err = logical.Factorize(6, logical.SplitInto(2, 3), logical.SplitInto(3, 2))
	fmt.Println(err)
	// Output:
	// [2 4] [logical.0 logical.1] <nil>
	// P(nil, (logical.0, logical.1))
	// logical: split: splits of one step cut its 6 logical devices both after 2 and after 3; let one cut be a multiple of the other, as 2 and 4
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

// Device i of a split holds the part at the row-major coordinates of i, however
// the axis was cut for the other splits of the step.
func TestSplitPartsAreInRowMajorOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		devices := 1 << rng.IntN(5)
		annotations := make([]logical.Annotation, 1+rng.IntN(3))
		for i := range annotations {
			parts, left := make([]int, 1+rng.IntN(3)), devices
			for d := range parts {
				parts[d] = 1 << rng.IntN(5)
				for left%parts[d] != 0 {
					parts[d] /= 2
				}
				if d == len(parts)-1 {
					parts[d] = left
				}
				left /= parts[d]
			}
			annotations[i] = logical.SplitInto(parts...)
		}
		factors, err := logical.Factorize(devices, annotations...)
		require.NoError(t, err)
		mesh, err := sharding.NewMesh(factors.Axes()...)
		require.NoError(t, err)
		require.Equal(t, devices, mesh.Size())
		for _, a := range annotations {
			parts := a.Parts()
			shape := make([]int, len(parts))
			for d := range shape {
				shape[d] = parts[d] * (1 + rng.IntN(3))
			}
			require.NoError(t, a.Validate("x", shape, devices))
			for device := range devices {
				ranges, err := sharding.IndexRanges(mesh, a.Spec(len(shape), factors), shape, device)
				require.NoError(t, err)
				rest := device
				for d := len(parts) - 1; d >= 0; d-- {
					at := rest % parts[d]
					rest /= parts[d]
					require.Equal(t, at*shape[d]/parts[d], ranges[d].Start, "%s of %v on device %d", a, shape, device)
				}
			}
		}
	}
}
