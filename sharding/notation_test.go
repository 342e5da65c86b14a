package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseSpecIsInverseOfString(t *testing.T) {
	for text, spec := range map[string]sharding.Spec{
		"()":                 sharding.P(),
		"-":                  sharding.P(nil),
		"replica,-,a+b":      sharding.P("replica", nil, []string{"a", "b"}),
		"a?,?":               sharding.P(sharding.OpenDim("a"), sharding.OpenDim()),
		"-,replicated=x+y":   sharding.P(nil).WithReplicated("x", "y"),
		"replicated=x":       sharding.P().WithReplicated("x"),
		"-a,model.0,replica": sharding.P("-a", "model.0", "replica"),
		// Ambiguous names are quoted.
		`"2",2x,"none","replicate","-"`: sharding.P("2", "2x", "none", "replicate", "-"),
		`"","a,b","a+b?","\xff\""`:      sharding.P("", "a,b", "a+b?", "\xff\""),
	} {
		assert.Equal(t, text, spec.String())
		read, err := sharding.ParseSpec(text)
		require.NoError(t, err)
		assert.True(t, spec.Equal(read), text)
	}
	read, err := sharding.ParseSpec(" replica , - , a + b ")
	require.NoError(t, err)
	assert.Equal(t, "replica,-,a+b", read.String())
}

func TestParseSpecRejectsMalformedText(t *testing.T) {
	for text, want := range map[string]string{
		"": `sharding: split "": expected the name of an axis, or - for a dimension that is ` +
			`not split at offset 0, near ""; write the axes of each dimension, as in replica,-,a+b`,
		"a,":                          "expected the name",
		"a,,b":                        "expected the name",
		"a+":                          "expected the name",
		"a+-":                         "expected the name",
		"1,2":                         "expected the name",
		"P(a, nil)":                   "unexpected text",
		"()a":                         "unexpected text",
		"a b":                         "unexpected text",
		"??":                          "unexpected text",
		`"a`:                          "expected the name",
		"replicated=x,a":              "unexpected text",
		"replicated=":                 "expected the name",
		"-,replicated=x,replicated=y": "unexpected text",
	} {
		_, err := sharding.ParseSpec(text)
		require.ErrorIs(t, err, sharding.ErrSyntax, text)
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzSpec(f *testing.F) {
	f.Add("replica,-,a+b?", "a", "b", true)
	f.Add(`"2",?,replicated=x+y`, "-", "a,b", false)
	f.Fuzz(func(t *testing.T, text, one, two string, open bool) {
		built := sharding.P(one, nil, sharding.Dim{Axes: []string{one, two}, Open: open})
		for _, spec := range []sharding.Spec{built, built.WithReplicated(two), sharding.P().WithReplicated(one)} {
			read, err := sharding.ParseSpec(spec.String())
			require.NoError(t, err, spec)
			require.True(t, spec.Equal(read), spec)
		}
		if spec, err := sharding.ParseSpec(text); err == nil {
			read, err := sharding.ParseSpec(spec.String())
			require.NoError(t, err, text)
			require.True(t, spec.Equal(read), text)
		}
	})
}

func TestParseMeshIsInverseOfString(t *testing.T) {
	for _, text := range []string{"()", "replica=2,logical=4", "a=1", "2=4,none=1,-=3"} {
		mesh, err := sharding.ParseMesh(text)
		require.NoError(t, err)
		assert.Equal(t, text, mesh.String())
	}
	mesh, err := sharding.ParseMesh("replica = 2, logical=4")
	require.NoError(t, err)
	assert.True(t, mesh.Equal(mesh2x4(t)))
	for text, want := range map[string]string{
		"": `sharding: mesh "": expected "=" at offset 0, near ""; write axes with their sizes, as ` +
			`in replica=2,logical=4`,
		"a":                      `expected "="`,
		"a=":                     "expected a number",
		"a=-1":                   "expected a number",
		"a=2,":                   `expected "="`,
		"a=99999999999999999999": "expected a number",
		"a=2 b=2":                "unexpected text",
		"Mesh(a=2)":              `expected "="`,
		"=2":                     "the name is empty",
		"a=0":                    "its size is 0",
		"a=2,a=2":                "used twice",
		"a=65536,b=65536":        "more than",
	} {
		_, err := sharding.ParseMesh(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzMesh(f *testing.F) {
	f.Add("replica=2,logical=4")
	f.Add(" a = 1 ")
	f.Fuzz(func(t *testing.T, text string) {
		if mesh, err := sharding.ParseMesh(text); err == nil {
			again, err := sharding.ParseMesh(mesh.String())
			require.NoError(t, err)
			require.True(t, mesh.Equal(again))
		}
	})
}
