package ir_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

func TestTheTextNumbersItsStatements(t *testing.T) {
	m := sample()
	here := &ir.Origin{File: "me/model.go", Line: 7}
	m.Functions[1].Body[0].Results[0].Origin = here // the slice; the reduction reads its result
	text, origins, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, []*ir.Origin{here, here}, origins)
	assert.Contains(t, string(text), `: (tensor<4xf32>) -> tensor<4xf32> loc("slice_s0")`)
	assert.Contains(t, string(text), `-> tensor<f32> loc("reduce_s1")`)
	assert.NotContains(t, string(text), "model.go")

	plain := sample()
	before, none, err := plain.Text()
	require.NoError(t, err)
	assert.Empty(t, none)
	assert.Equal(t, string(before), strings.NewReplacer(` loc("slice_s0")`, "", ` loc("reduce_s1")`, "").Replace(string(text)))

}
