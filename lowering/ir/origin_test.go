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
	assert.Equal(t, string(before), strings.NewReplacer(` loc("slice_s0")`, "", ` loc("reduce_s1")`,
		"").Replace(string(text)))

}

func TestOriginOfNames(t *testing.T) {
	all := []*ir.Origin{{Line: 1}, {Line: 2}, {Line: 3}}
	for name, want := range map[string]*ir.Origin{
		"add_s1": all[1], "call_s0/while_s2/dot_general_s1": all[1], "call_s0/reduce_s2.clone": all[2], "call_s0/add": all[0],
		"": nil, "add": nil, "call.11/call.2/dot.8": nil, "add_s3": nil, "add_s-1": nil, "add_s99999999999999999999": nil,
		"add_s1e9": nil, "_s": nil,
		"my_s1x": nil,
	} {
		assert.Same(t, want, ir.OriginOf(name, all), name)
	}
}
