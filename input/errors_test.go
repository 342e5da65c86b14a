package input_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	for want, err := range map[string]error{
		"the next size that is divisible is 8": &input.IndivisibleBatchError{Global: 7, Replicas: 2},
		`component ".x" (int32[? 3])`:          &input.NotBatchedError{Component: ".x", Spec: input.TensorSpec{Kind: input.Int32, Dims: []int{-1, 3}}},
	} {
		assert.ErrorContains(t, err, want)
		assert.True(t, strings.HasPrefix(err.Error(), "input: "))
	}
}
