package screen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadGivesTheOperationsOfAText(t *testing.T) {
	top, ok := Read([]byte(`%a:2 = "stablehlo.while"(%x, %y) ({ ^c(%i: tensor<i32>): "stablehlo.return"(%i) : (tensor<i32>) -> () }) {k = 3 : i64} : (tensor<i32>, tensor<f32>) -> (tensor<i32>, tensor<f32>)`))
	require.True(t, ok)
	require.Len(t, top.Ops, 1)
	op := top.Ops[0]
	assert.Equal(t, "stablehlo.while", op.Name)
	assert.Equal(t, []string{"%x", "%y"}, op.Operands)
	assert.Equal(t, "3 : i64", op.Attribute("k"))
	assert.Empty(t, op.Attribute("none"))
	assert.True(t, op.IsResult("%a#1"))
	assert.False(t, op.IsResult("%b"))
	require.Len(t, op.Regions, 1)
	assert.Equal(t, []string{"%i"}, op.Regions[0].Args)
}

func TestReadRefusesWhatHasNoText(t *testing.T) {
	for name, code := range map[string]string{
		"bytecode": mlirBytecodeMagic + "x",
		"deep":     strings.Repeat("module {", maxNesting+1),
	} {
		_, ok := Read([]byte(code))
		assert.False(t, ok, name)
	}
	_, ok := Read([]byte(`module attributes {a = "` + strings.Repeat("(", 2*maxNesting) + `\""} {`))
	assert.True(t, ok, "brackets in a string are none")
}
