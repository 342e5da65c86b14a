package clusterresolver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tpuEnvV4 has the keys and the quoting of the attribute of a v4-32.
const tpuEnvV4 = `ACCELERATOR_TYPE: 'v4-32'
ALT: 'false'
CHIPS_PER_HOST_BOUNDS: '2,2,1'
CONSUMER_PROJECT_ID: 'my-project'
HOST_BOUNDS: '1,1,4'
INJECT_SLICE_BUILDER_FAULT: ''
NODE_ID: 'my-tpu'
TOPOLOGY: '2x2x4'
TPU_CHIPS_PER_PROCESS_BOUNDS: '2,2,1'
TPU_PROCESS_BOUNDS: '1,1,4'
TYPE: 'V4'
WORKER_ID: '2'
WRAP: 'true,true,true'
ZONE: 'us-central2-b'
`

func TestParseTPUEnv(t *testing.T) {
	e, err := ParseTPUEnv(tpuEnvV4)
	require.NoError(t, err)
	assert.Equal(t, "v4-32", e.Get("ACCELERATOR_TYPE"))
	assert.Equal(t, "", e.Get("INJECT_SLICE_BUILDER_FAULT"))
	assert.Equal(t, "", e.Get("NOT_THERE"))
	assert.Equal(t, 14, e.Len())
	assert.Equal(t, tpuEnvV4, e.String())
	assert.IsIncreasing(t, e.Keys())

	e, err = ParseTPUEnv("---\n# note\nPLAIN: a: b\n  goes on\nEMPTY:\nTWO: 'it''s'\nD: \"a\\n\\\"b\\\"\"\r\n")
	require.NoError(t, err)
	assert.Equal(t, "a: b goes on", e.Get("PLAIN"))
	assert.Equal(t, "it's", e.Get("TWO"))
	assert.Equal(t, "a\n\"b\"", e.Get("D"))

	for text, want := range map[string]string{
		"no colon":                 "not KEY: value",
		": v":                      "not KEY: value",
		"K V: x":                   "not KEY: value",
		"<html>: x":                "not KEY: value",
		" indented: x":             "indented line",
		"A: 'x'\n more":            "indented line",
		"A: 1\nA: 2":               "duplicate key",
		"A: 'x":                    "missing closing quote",
		"A: '":                     "missing closing quote",
		"A: 'x'y'":                 "stray quote",
		`A: "x"y"`:                 "stray quote",
		`A: "\q"`:                  "unknown escape",
		`A: "x\"`:                  "missing closing quote",
		strings.Repeat("A", 1<<21): "longer than 1 MiB",
	} {
		_, err := ParseTPUEnv(text)
		var pe *ParseError
		require.ErrorAs(t, err, &pe, "%.40q", text)
		assert.ErrorContains(t, err, want)
	}
}
