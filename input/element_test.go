package input_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestUnknownSpecs(t *testing.T) {
	mixed := input.FromElements(input.Leaf(input.Scalar[int32](1)), input.Leaf(input.Scalar[int64](1)))
	assert.True(t, mixed.Info().Spec.IsZero())
	assert.True(t, mixed.Batch(2, true).Info().Spec.IsZero(), "what is not known stays so")
}
